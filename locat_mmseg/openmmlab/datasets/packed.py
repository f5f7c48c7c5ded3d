"""A packed file as a data set for classification."""
from collections.abc import Callable, Sequence

from mmpretrain.datasets import BaseDataset
from mmpretrain.registry import DATASETS

from ...analysis.packed_images import read_packed


@DATASETS.register_module()
class PackedImages(BaseDataset):
    """The images of a file of ``tools/pack_cifar.py``, in memory, RGB.

    It takes the place of mmpretrain's CIFAR10 and CIFAR100 in any config: same arguments, same
    pipelines.

    Args:
        data_root: The packed file.
        split: 'train' or 'test'.
        pipeline, indices, test_mode, lazy_init: As in mmpretrain's :class:`BaseDataset`.

    Raises:
        ValueError: When loading: the file is no packed data set, or has no such split.
    """

    def __init__(self, data_root: str, split: str, pipeline: Sequence[dict | Callable] = (),
                 indices: int | Sequence[int] | None = None, test_mode: bool = False,
                 lazy_init: bool = False) -> None:
        self.split = split
        super().__init__(ann_file='', data_root=data_root, pipeline=pipeline, indices=indices,
                         test_mode=test_mode, lazy_init=lazy_init)

    def load_data_list(self) -> list[dict]:
        """One record an image, as mmpretrain's transforms expect it."""
        images, labels, classes = read_packed(self.data_root, self.split)
        self._metainfo['classes'] = classes
        return [dict(img=image, gt_label=int(label)) for image, label in zip(images, labels)]
