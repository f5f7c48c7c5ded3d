"""What a segmentation score is worth: the score of the best answer that looks at no image."""
from collections.abc import Sequence

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import MMLogger
from mmengine.registry import METRICS


@METRICS.register_module()
class CommonestClassMetric(BaseMetric):
    """mIoU (percent) of predicting the commonest class of the truth everywhere.

    Beside mmseg's IoUMetric in an evaluator it tells how much a model has learnt:
    ``val_evaluator = [dict(type='IoUMetric', ...), dict(type='CommonestClassMetric')]``.

    Args:
        ignore_index: label of void pixels.
        collect_device, prefix: of mmengine's BaseMetric.
    """

    def __init__(self, ignore_index: int = 255, collect_device: str = 'cpu',
                 prefix: str | None = None) -> None:
        super().__init__(collect_device, prefix)
        self.ignore_index = ignore_index

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count the pixels of each class in the truth of a batch."""
        num_classes = len(self.dataset_meta['classes'])
        for sample in data_samples:
            label = sample['gt_sem_seg']['data'].cpu().numpy()
            self.results.append(
                np.bincount(label[label != self.ignore_index], minlength=num_classes))

    def compute_metrics(self, results: list[np.ndarray]) -> dict[str, float]:
        """The mean over the classes that occur, as in mmseg's mIoU; all but one score 0."""
        counts = np.sum(results, axis=0)
        commonest = int(counts.argmax())
        miou = 100 * counts[commonest] / counts.sum() / np.count_nonzero(counts)
        MMLogger.get_current_instance().info(
            f"mIoU of predicting '{self.dataset_meta['classes'][commonest]}' everywhere: "
            f'{miou:.2f}')
        return dict(commonest_class_mIoU=round(float(miou), 2))
