"""Self-drawn shapes for classification."""
from collections.abc import Callable, Sequence

from mmpretrain.datasets import BaseDataset
from mmpretrain.registry import DATASETS

from .draw_shapes import CLASSES, draw_layout, largest_label
from .shapes_files import image_path, list_pictures


@DATASETS.register_module()
class ShapesClsDataset(BaseDataset):
    """The pictures of :class:`ShapesSegDataset`, each labelled by its largest shape.

    The largest is the shape with the most visible pixels; among equals, the one furthest back.
    There are nine classes, without background: label k is class k + 1 of the segmentation. The
    labels are found by placing the shapes of all pictures at start, about 1 ms each.

    Args:
        split, num_images, img_size, seed: As in :class:`ShapesSegDataset`; where they are equal,
            so are the pictures.
        pipeline, indices, test_mode, lazy_init: As in mmpretrain's :class:`BaseDataset`.

    Raises:
        ValueError: Unknown split, no images, or a size or seed out of range.
    """
    METAINFO = dict(classes=CLASSES[1:])

    def __init__(self, split: str, num_images: int, img_size: Sequence[int] = (128, 128),
                 seed: int = 0, pipeline: Sequence[dict | Callable] = (),
                 indices: int | Sequence[int] | None = None, test_mode: bool = False,
                 lazy_init: bool = False) -> None:
        self.pictures = list_pictures(split, num_images, img_size, seed)
        super().__init__(ann_file='', pipeline=pipeline, indices=indices, test_mode=test_mode,
                         lazy_init=lazy_init)

    def load_data_list(self) -> list[dict]:
        """One record a picture, as mmpretrain's transforms expect it."""
        return [dict(img_path=image_path(picture),
                     gt_label=largest_label(draw_layout(picture)) - 1)
                for picture in self.pictures]
