"""Tiny data sets and configs for the tests that run OpenMMLab, and the tools as modules."""
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ANIMALS = ('cat', 'dog')  # of the classification data
SIZES = ((37, 53), (41, 48), (32, 32), (50, 33))  # (height, width) of the images


def load_tool(name: str) -> ModuleType:
    """tools/<name>.py as a module; its main(argv) runs it in this process."""
    spec = importlib.util.spec_from_file_location(f'tools_{name}', REPOSITORY / f'tools/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tool: Callable, *argv: object) -> None:
    """Run a tool's main with a command line."""
    tool([str(a) for a in argv])


def mistake(tool: Callable, *argv: object) -> str:
    """The one sentence that a tool prints before it exits with status 1."""
    with pytest.raises(SystemExit) as exit_:
        run(tool, *argv)
    text = exit_.value.code  # text as exit code: Python prints it and exits with status 1
    assert isinstance(text, str) and text.startswith('error: ') and '\n' not in text
    return text.removeprefix('error: ')


def draw_pair(number: int) -> tuple[np.ndarray, np.ndarray]:
    """An image of odd size whose colours tell its classes, and its label map with some void."""
    height, width = SIZES[number % len(SIZES)]
    labels = np.zeros((height, width), np.uint8)
    labels[:, width // 2:] = 1
    labels[height * 2 // 3:] = 2
    labels[0, :number + 1] = 255
    image = np.random.default_rng(number).integers(0, 60, (height, width, 3), np.uint8)
    image += (labels % 3)[..., None] * np.array([60, 30, 90], np.uint8)
    return image, labels


def write_segmentation_data(root: Path) -> Path:
    """images/{train,val}/*.png and annotations/{train,val}/*.png: 4 and 2 pairs, 3 classes."""
    for split, numbers in (('train', range(4)), ('val', range(4, 6))):
        for kind in ('images', 'annotations'):
            (root / kind / split).mkdir(parents=True)
        for number in numbers:
            image, labels = draw_pair(number)
            cv2.imwrite(str(root / f'images/{split}/{number}.png'), image)
            cv2.imwrite(str(root / f'annotations/{split}/{number}.png'), labels)
    return root


def write_classification_data(root: Path) -> Path:
    """{train,val}/{cat,dog}/*.png: 4 and 2 images of each class."""
    for split, count in (('train', 4), ('val', 2)):
        for label, name in enumerate(ANIMALS):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                image = np.full((*SIZES[number], 3), 60 + 120 * label, np.uint8)
                cv2.imwrite(str(root / split / name / f'{name}{number}.png'), image)
    return root


SEGMENTATION = """
_base_ = ['{repository}/configs/_base_/runtime/segmentation.py']
norm_cfg = dict(type='SyncBN', requires_grad=True)
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
resize = [dict(type='Resize', scale=(32, 32), keep_ratio=False)]
pack = [dict(type='PackSegInputs')]
val_pipeline = [load[0], *resize, load[1], *pack]
tta_pipeline = [load[0], dict(type='TestTimeAug', transforms=[
    resize, [dict(type='RandomFlip', prob=0.), dict(type='RandomFlip', prob=1.)], load[1:], pack])]
dataset = dict(type='BaseSegDataset', data_root='{data}', img_suffix='.png',
               serialize_data=False, metainfo=dict(classes=('left', 'right', 'low')))
train_dataloader = dict(
    batch_size=2, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(**dataset, pipeline=[*load, *resize, *pack], data_prefix=dict(
        img_path='images/train', seg_map_path='annotations/train')))
val_dataloader = dict(
    batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(**dataset, pipeline=val_pipeline, data_prefix=dict(
        img_path='images/val', seg_map_path='annotations/val')))
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', size=(32, 32), seg_pad_val=255,
                           mean=[120.] * 3, std=[60.] * 3),
    backbone=dict(type='VisionTransformer', img_size=(32, 32), patch_size=8, embed_dims=32,
                  num_layers=1, num_heads=2, mlp_ratio=2, out_indices=(0,)),
    decode_head=dict(type='FCNHead', in_channels=32, in_index=0, channels=16, num_convs=1,
                     concat_input=False, num_classes=3, norm_cfg=norm_cfg),
    auxiliary_head=dict(type='FCNHead', in_channels=32, in_index=0, channels=8, num_convs=1,
                        concat_input=False, num_classes=3, norm_cfg=norm_cfg),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3),
                     clip_grad=dict(max_norm=1.))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=2)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=2)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1))
"""

CLASSIFICATION = """
_base_ = ['{repository}/configs/_base_/runtime/classification.py']
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
            dict(type='PackInputs')]
tta_pipeline = [pipeline[0], dict(type='TestTimeAug', transforms=[
    pipeline[1:2], [dict(type='RandomFlip', prob=0.), dict(type='RandomFlip', prob=1.)],
    pipeline[2:]])]
dataset = dict(type='CustomDataset', data_root='{data}', serialize_data=False, pipeline=pipeline)
train_dataloader = dict(
    batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(**dataset, data_prefix='train'))
val_dataloader = dict(
    batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(**dataset, data_prefix='val'))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
data_preprocessor = dict(num_classes=2, mean=[120.] * 3, std=[60.] * 3)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='VisionTransformer', img_size=32, patch_size=8,
                  arch=dict(embed_dims=32, num_layers=1, num_heads=2, feedforward_channels=64)),
    head=dict(type='LinearClsHead', num_classes=2, in_channels=32, topk=(1,),
              loss=dict(type='CrossEntropyLoss')))
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3))
train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=2)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(enable=False, base_batch_size=4)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1))
"""


_COUNTER = itertools.count()


def write_config(template: str, data: Path, folder: Path, extra: str = '') -> Path:
    """A config on some data, with lines to append.

    Each has a name of its own: mmengine names loggers and visualizers after config and second.
    """
    path = folder / f'tiny_{next(_COUNTER)}.py'
    text = template.replace('{repository}', REPOSITORY.as_posix())
    path.write_text(text.replace('{data}', data.as_posix()) + extra, encoding='utf-8')
    return path
