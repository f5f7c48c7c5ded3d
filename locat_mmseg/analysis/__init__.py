"""What a trained transformer does and costs: captured, measured and shown, on torch and timm."""
from .capture import LayerAttention, capture_attention
from .locality import evaluation_mode, measure_locality
from .locality_meter import LocalityMeter
from .locality_results import LayerLocality, Locality
from .receptive_areas import receptive_areas

__all__ = [
    'LayerAttention', 'LayerLocality', 'Locality', 'LocalityMeter', 'capture_attention',
    'evaluation_mode', 'measure_locality', 'receptive_areas'
]
