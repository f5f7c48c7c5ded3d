"""Self-drawn shapes for semantic segmentation."""
from collections.abc import Callable, Sequence

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from .draw_shapes import CLASSES
from .shapes_files import image_path, label_path, list_pictures


@DATASETS.register_module()
class ShapesSegDataset(BaseSegDataset):
    """Nine classes of textured shapes and the cluttered background, ten classes in all.

    The classes are forms, five of them made of lines 2.5 to 4 px thick. Two of three shapes also
    have the hue of their class, which is that of the palette.

    There are no files: mmcv's and mmseg's loading transforms draw the pictures when they read
    their ``shapes://`` paths. The same arguments give the same pictures on every machine.

    Args:
        split: 'train' or 'test'.
        num_images: How many pictures. A larger set begins with the pictures of a smaller one.
        img_size: (height, width) in pixels.
        seed: Another seed is another data set, for both splits.
        pipeline, metainfo, indices, reduce_zero_label, test_mode, lazy_init: As in mmseg's
            :class:`BaseSegDataset`.

    Raises:
        ValueError: Unknown split, no images, or a size or seed out of range.
    """
    METAINFO = dict(
        classes=CLASSES,
        palette=[[64, 64, 64], [224, 82, 82], [226, 168, 60], [170, 205, 70], [80, 180, 80],
                 [70, 200, 160], [80, 160, 220], [85, 95, 215], [155, 90, 215], [225, 90, 180]])

    def __init__(self, split: str, num_images: int, img_size: Sequence[int] = (128, 128),
                 seed: int = 0, pipeline: Sequence[dict | Callable] = (),
                 metainfo: dict | None = None, indices: int | Sequence[int] | None = None,
                 reduce_zero_label: bool = False, test_mode: bool = False,
                 lazy_init: bool = False) -> None:
        self.pictures = list_pictures(split, num_images, img_size, seed)
        super().__init__(pipeline=pipeline, metainfo=metainfo, indices=indices,
                         reduce_zero_label=reduce_zero_label, test_mode=test_mode,
                         lazy_init=lazy_init)

    def load_data_list(self) -> list[dict]:
        """One record a picture, as mmseg's transforms expect it."""
        return [dict(img_path=image_path(picture), seg_map_path=label_path(picture),
                     label_map=self.label_map, reduce_zero_label=self.reduce_zero_label,
                     seg_fields=[]) for picture in self.pictures]
