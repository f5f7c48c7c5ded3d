"""Pack CIFAR-10 or CIFAR-100 into one file that a machine without OpenMMLab can read too.

The source is a folder with the original pickles (cifar-10-batches-py or cifar-100-python) or one
with {train,test}/CLASS/*.png. `PackedImages` reads the file in a config, and
`locat_mmseg.analysis.packed_images.read_packed` anywhere.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset
from torchvision.datasets import CIFAR10, CIFAR100, ImageFolder

from locat_mmseg.analysis.packed_images import write_packed
from locat_mmseg.analysis.run_record import check_target
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors

SPLITS = ('train', 'test')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, help='folder of the data set')
    parser.add_argument('out', type=Path, help='file to write, such as cifar100.npz')
    parser.add_argument('--train', type=int, metavar='N',
                        help='how many training images; by default all. As many of each class, '
                        'the first of them')
    parser.add_argument('--test', type=int, metavar='N', help='how many test images, likewise')
    return parser.parse_args(argv)


def open_split(source: Path, split: str) -> Dataset:
    """A data set of torchvision with PIL images, ``targets`` and ``classes``."""
    if (source / split).is_dir():
        return ImageFolder(source / split)
    for cls in (CIFAR10, CIFAR100):
        if (source / cls.base_folder).is_dir():
            return cls(source, train=split == 'train')
    raise UserError(f'{source} holds none of {split}/, {CIFAR10.base_folder}/ and '
                    f'{CIFAR100.base_folder}/: give the folder that holds the data set')


def balanced(targets: Sequence[int], count: int | None) -> np.ndarray:
    """Indices of the first images of each class, ``count`` in all, in ascending order.

    Raises:
        UserError: The classes cannot have equal shares, or one of them is too small.
    """
    targets = np.asarray(targets)
    if count is None:
        return np.arange(len(targets))
    members = [np.flatnonzero(targets == label) for label in np.unique(targets)]
    share, rest = divmod(count, len(members))
    smallest = min(map(len, members))
    if rest or not 0 < share <= smallest:
        raise UserError(f'{count} images cannot be drawn equally from {len(members)} classes of '
                        f'{smallest} or more: give a multiple of {len(members)}, at most '
                        f'{len(members) * smallest}')
    return np.sort(np.concatenate([indices[:share] for indices in members]))


def pack(source: Path, out: Path, counts: dict[str, int | None]) -> None:
    """Write the chosen images of both splits."""
    splits, classes = {}, []
    for split in SPLITS:
        dataset = open_split(source, split)
        if classes and classes != dataset.classes:
            raise UserError(f'{source} has other classes in {split} than in train')
        classes = dataset.classes
        chosen = balanced(dataset.targets, counts[split])
        images = np.stack([np.asarray(dataset[index][0]) for index in chosen])
        splits[split] = images, np.asarray(dataset.targets)[chosen]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_packed(out, splits, classes)
    numbers = ', '.join(f'{len(labels)} {split}' for split, (_, labels) in splits.items())
    print(f'{out}: {numbers} images, {len(classes)} classes, {out.stat().st_size / 1e6:.1f} MB')


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        check_target(args.out)
        pack(args.source, args.out, dict(train=args.train, test=args.test))


if __name__ == '__main__':
    main()
