"""Data sets that mmseg and mmpretrain lack, registered with those of the two that are installed."""
from importlib.util import find_spec

if find_spec('mmseg'):
    from .shapes_seg import ShapesSegDataset  # noqa: F401
if find_spec('mmpretrain'):
    from .packed import PackedImages  # noqa: F401
    from .shapes_cls import ShapesClsDataset  # noqa: F401
    from .tiny_imagenet import TinyImageNet  # noqa: F401
