"""Self-drawn data sets, registered with those OpenMMLab packages that are installed."""
from importlib.util import find_spec

if find_spec('mmseg'):
    from .shapes_seg import ShapesSegDataset  # noqa: F401
if find_spec('mmpretrain'):
    from .shapes_cls import ShapesClsDataset  # noqa: F401
