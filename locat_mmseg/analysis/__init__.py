"""Looking into timm models, converted or not: what they cost, what they do."""
