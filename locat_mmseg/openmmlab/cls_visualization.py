"""Pictures of classification results."""
from pathlib import Path

import mmcv
from mmengine.fileio import get
from mmpretrain.engine.hooks import VisualizationHook
from mmpretrain.registry import HOOKS

from .errors import UserError


@HOOKS.register_module()
class FileVisualizationHook(VisualizationHook):
    """mmpretrain's hook, but it draws on the image file instead of the model's input.

    The input has been resized and perhaps normalised, and its channels may be swapped. The name of
    a picture begins with the image's folder, since files of two classes may have the same name.

    Arguments as in mmpretrain's `VisualizationHook`.
    """

    def _draw_samples(self, batch_idx: int, data_batch: dict, data_samples: list,
                      step: int = 0) -> None:
        if not self.enable:
            return
        start = batch_idx * len(data_samples)
        for sample in data_samples[-start % self.interval::self.interval]:
            if 'img_path' not in sample:
                raise UserError('pictures of the results need image files, and this data set has '
                                'none (no img_path in its samples): leave out --show-dir')
            image = mmcv.imfrombytes(get(sample.img_path), channel_order='rgb')
            name = '_'.join(Path(sample.img_path).parts[-2:])
            if self.out_dir is not None:
                self.draw_args['out_file'] = str(Path(self.out_dir, f'{name}_{step}.png'))
            self._visualizer.visualize_cls(image=image, data_sample=sample, step=step, name=name,
                                           **self.draw_args)
