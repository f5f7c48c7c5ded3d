"""Spatial locality for vision transformers in OpenMMLab: LocAt (GAug and PRR) and its tools.

Where OpenMMLab's mmengine is installed, importing this package registers every part of it, so a
config of any OpenMMLab project needs one line: ``custom_imports = dict(imports=['locat_mmseg'])``.
Without OpenMMLab, `locat_mmseg.layers` and `locat_mmseg.addon` work on torch and timm alone.
"""
from importlib.util import find_spec

__version__ = '0.1.0'

if find_spec('mmengine') is not None:
    from . import openmmlab  # noqa: F401
