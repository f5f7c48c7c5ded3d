"""Dense retrieval of a frozen backbone on the images of a segmentation config."""
from collections.abc import Sequence

import numpy as np
from mmseg.evaluation import IoUMetric
from mmseg.structures import SegDataSample
from torch import Tensor
from torch.utils.data import DataLoader

from ..analysis.dense_retrieval import DenseRetrieval
from .errors import UserError
from .frozen_backbone import FrozenBackbone
from .frozen_data import dataset_of, with_progress
from .label_checks import check_labels


def evaluate_dense_retrieval(backbone: FrozenBackbone, train: DataLoader, test: DataLoader,
                             memory_size: int | None = None, k: int = 30,
                             temperature: float = 0.02, seed: int = 0) -> dict[str, object]:
    """mIoU, mean class accuracy and pixel accuracy in percent, with progress bars.

    Args:
        backbone: whose `patch_maps` are read.
        train: images to memorise, with label maps of their size.
        test: images to segment, with label maps of any size, to which predictions are enlarged.
        memory_size: the most patches to memorise; None: all.
        k, temperature: of `PatchMemory.lookup`.
        seed: of the choice of patches.

    Returns:
        Also ``IoU``, of each class by name (None where it is neither in truth nor prediction), and
        what the memory held.

    Raises:
        UserError: if the data set names no classes, or an image has no labels.
        ValueError: if memory, images and labels do not fit each other.
    """
    dataset = dataset_of(train)
    classes, void = dataset.metainfo.get('classes'), getattr(dataset, 'ignore_index', 255)
    if not classes:
        raise UserError(f'{type(dataset).__name__} names no classes: give its config '
                        'metainfo=dict(classes=(...))')
    stride = backbone.stride
    retrieval = DenseRetrieval(len(classes), len(train.dataset), memory_size, void, seed)
    for batch in with_progress(train, 'memorising'):
        for features, sample in zip(*backbone.patch_maps(batch)):
            truth = label_map_of(sample, len(classes), void)
            retrieval.memorize(features, truth.to(features.device), stride)
    metric = IoUMetric(iou_metrics=['mIoU'], ignore_index=void)
    metric.dataset_meta = dataset.metainfo
    for batch in with_progress(test, 'segmenting'):
        for features, sample in zip(*backbone.patch_maps(batch)):
            truth = label_map_of(sample, len(classes), void)
            labels = retrieval.segment(features, sample.img_shape, stride, tuple(truth.shape), k,
                                       temperature)
            metric.process({}, [dict(pred_sem_seg=dict(data=labels),
                                     gt_sem_seg=dict(data=truth))])
    return {**score(metric, classes), 'patches_stored': len(retrieval.memory),
            'memory_mib': round(retrieval.memory.num_bytes / 2 ** 20, 1)}


def label_map_of(sample: SegDataSample, num_classes: int, void: int) -> Tensor:
    """The label map (H, W) of a data sample.

    Raises:
        UserError: if it has none, or a label that is neither a class nor void.
    """
    if 'gt_sem_seg' not in sample:
        raise UserError('an image has no label map: dense retrieval takes a segmentation config '
                        'with LoadAnnotations in its test pipeline')
    labels = sample.gt_sem_seg.data[0]
    check_labels(labels, num_classes, void, sample)
    return labels


def score(metric: IoUMetric, classes: Sequence[str]) -> dict[str, object]:
    """The metric's numbers, and the IoU of each class."""
    areas = [sum(area) for area in zip(*metric.results)]
    each = IoUMetric.total_area_to_metrics(*areas, metrics=['mIoU'])['IoU']
    summary = metric.evaluate(len(metric.results))
    return {**{name: float(value) for name, value in summary.items()},
            'IoU': {name: None if np.isnan(value) else round(100 * float(value), 2)
                    for name, value in zip(classes, each)}}
