"""Pictures of segmentation results with image, truth and prediction side by side."""
import mmcv
import numpy as np
from mmengine.dist import master_only
from mmseg.registry import VISUALIZERS
from mmseg.structures import SegDataSample
from mmseg.visualization import SegLocalVisualizer


@VISUALIZERS.register_module()
class SegPanelVisualizer(SegLocalVisualizer):
    """mmseg's visualizer, which draws truth and prediction over the image, with the bare image
    before them: fine structure can be compared only where nothing is painted over it.

    Arguments as in mmseg's `SegLocalVisualizer`; ``alpha=1`` paints the label maps opaque.
    """

    @master_only
    def add_datasample(self, name: str, image: np.ndarray,
                       data_sample: SegDataSample | None = None, draw_gt: bool = True,
                       draw_pred: bool = True, show: bool = False, wait_time: float = 0,
                       out_file: str | None = None, step: int = 0,
                       with_labels: bool = False) -> None:
        """Draw the panels and give them to all visualizer backends, a window or a file.

        Args:
            name: of the picture.
            image: (H, W, 3) in RGB.
            data_sample: with ``gt_sem_seg``, ``pred_sem_seg``, or both.
            draw_gt: whether to draw the truth.
            draw_pred: whether to draw the prediction.
            show: a window instead of the backends.
            wait_time: seconds that the window stays; 0 until a key is pressed.
            out_file: a file instead of the backends.
            step: recorded with the picture.
            with_labels: write the names of the classes into the label maps.
        """
        wanted = [key for key, draw in (('gt_sem_seg', draw_gt), ('pred_sem_seg', draw_pred))
                  if draw and data_sample is not None and key in data_sample]
        classes, palette = self.dataset_meta['classes'], self.dataset_meta['palette']
        panels = [image] + [self._draw_sem_seg(image, data_sample.get(key), classes, palette,
                                               with_labels) for key in wanted]
        picture = np.concatenate(panels, axis=1)
        if show:
            self.show(picture, win_name=name, wait_time=wait_time)
        if out_file is not None:
            mmcv.imwrite(mmcv.rgb2bgr(picture), out_file)
        elif not show:
            self.add_image(name, picture, step)
