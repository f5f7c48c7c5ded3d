"""Tiny-ImageNet, whose validation images lie in one folder, labelled by a text file."""
import os.path as osp
from collections.abc import Callable, Sequence

from mmengine.fileio import list_from_file
from mmpretrain.datasets import CustomDataset
from mmpretrain.registry import DATASETS

# split: where its images are, and the file of their labels ('' takes the class folders)
SPLITS = {'train': ('train', ''), 'val': ('val/images', 'val/val_annotations.txt')}


@DATASETS.register_module()
class TinyImageNet(CustomDataset):
    """200 classes of ImageNet at 64 px, 500 training and 50 validation images of each.

    It reads the folder as it was published (``tiny-imagenet-200``)::

        wnids.txt                       the classes, one WordNet number a line
        words.txt                       WordNet number, tab, names
        train/WNID/images/*.JPEG
        val/images/*.JPEG
        val/val_annotations.txt         file, WordNet number and box, divided by tabs

    Classes are numbered in the order of their sorted WordNet numbers, as image folders are.

    Args:
        data_root: The folder.
        split: 'train' or 'val'; the labels of the test images are not public.
        pipeline, indices, test_mode, lazy_init: As in mmpretrain's :class:`BaseDataset`.

    Raises:
        ValueError: Unknown split; when loading, a class without a name or without a folder, or a
            label that is no class.
        FileNotFoundError: When loading, one of the files is missing.
    """

    def __init__(self, data_root: str, split: str, pipeline: Sequence[dict | Callable] = (),
                 indices: int | Sequence[int] | None = None, test_mode: bool = False,
                 lazy_init: bool = False) -> None:
        if split not in SPLITS:
            raise ValueError(f'split={split!r}: expected one of {[*SPLITS]}; the labels of the '
                             'test images are not public')
        prefix, ann_file = SPLITS[split]
        super().__init__(data_root=data_root, data_prefix=prefix, ann_file=ann_file,
                         pipeline=pipeline, indices=indices, test_mode=test_mode,
                         lazy_init=lazy_init)

    def load_data_list(self) -> list[dict]:
        """One record an image, as mmpretrain's transforms expect it."""
        wnids = sorted(list_from_file(osp.join(self.data_root, 'wnids.txt')))
        words = osp.join(self.data_root, 'words.txt')
        names = dict(line.split('\t', 1) for line in list_from_file(words))
        nameless = [wnid for wnid in wnids if wnid not in names]
        if nameless:
            raise ValueError(f'{words} has no name for class {nameless[0]} of wnids.txt: unpack '
                             'the archive again')
        self._metainfo['classes'] = tuple(names[wnid] for wnid in wnids)
        if self.ann_file:
            return self._labelled_by_file({wnid: label for label, wnid in enumerate(wnids)})
        records = super().load_data_list()
        if [*self.folder_to_idx] != wnids:
            wrong = sorted({*self.folder_to_idx} ^ {*wnids})
            raise ValueError(f'the folders of {self.img_prefix} and wnids.txt differ in '
                             f'{", ".join(wrong[:4])}: unpack the archive again')
        return records

    def _labelled_by_file(self, labels: dict[str, int]) -> list[dict]:
        records = []
        for line in list_from_file(self.ann_file):
            name, wnid = line.split('\t')[:2]
            if wnid not in labels:
                raise ValueError(f'{self.ann_file} labels {name} {wnid}, which is no class of '
                                 'wnids.txt: unpack the archive again')
            records.append(dict(img_path=osp.join(self.img_prefix, name), gt_label=labels[wnid]))
        return records
