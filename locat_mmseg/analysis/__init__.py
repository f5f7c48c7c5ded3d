"""What a trained transformer does and costs: captured, measured and shown, on torch and timm."""
