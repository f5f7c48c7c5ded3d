"""k-NN accuracy of a model's features while it trains, for self-supervision above all."""
from functools import cached_property

import torch
from mmengine.dist import collect_results, is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from .frozen_classification import Labelled, evaluate_knn, label_of
from .hooks import unwrap


@HOOKS.register_module()
class KNNHook(Hook):
    """Logs the top-1 and top-5 accuracy of a weighted k-NN after epochs of training.

    The features are the last of what ``model.extract_feat`` gives for a batch, (B, C): of a
    classifier those of its neck, of `DINOPretraining` the teacher's. Several processes share the
    images.

    Args:
        train_dataset: settings of the data set that is memorised, with a pipeline that does not
            augment, such as a classification config's test pipeline.
        test_dataset: settings of the data set that is scored.
        interval: epochs between two evaluations.
        k: neighbours.
        temperature: of the votes, exp(cosine / temperature).
        batch_size, num_workers: of the loaders.
    """

    def __init__(self, train_dataset: dict, test_dataset: dict, interval: int = 1, k: int = 20,
                 temperature: float = 0.07, batch_size: int = 64, num_workers: int = 0) -> None:
        self.datasets = (train_dataset, test_dataset)
        self.interval = interval
        self.k = k
        self.temperature = temperature
        self.loader = dict(batch_size=batch_size, num_workers=num_workers,
                           sampler=dict(type='DefaultSampler', shuffle=False))

    @cached_property
    def _loaders(self) -> list[DataLoader]:
        return [Runner.build_dataloader(dict(dataset=dataset, **self.loader))
                for dataset in self.datasets]

    def after_train_epoch(self, runner: Runner) -> None:
        """Evaluate, and give the numbers to the log and the visualizer's backends."""
        if not self.every_n_epochs(runner, self.interval):
            return
        model = unwrap(runner.model)
        model.eval()
        train, test = (collect_features(model, loader) for loader in self._loaders)
        model.train()
        if is_main_process():
            accuracies = evaluate_knn(train, test, [self.k], self.temperature)
            runner.visualizer.add_scalars(accuracies, step=runner.epoch + 1)
            text = ', '.join(f'{name}: {value:.2f}' for name, value in accuracies.items())
            runner.logger.info(f'Epoch {runner.epoch + 1}: {text}')


@torch.no_grad()
def collect_features(model: nn.Module, loader: DataLoader) -> Labelled | None:
    """Features (M, C) and labels (M,) of all images, in the main process; None in the others."""
    rows = []
    for batch in loader:
        # Self-supervision's preprocessors take stacked images only.
        data = model.data_preprocessor(dict(inputs=torch.stack(batch['inputs']),
                                            data_samples=batch['data_samples']), False)
        features = model.extract_feat(data['inputs'])[-1].cpu()
        rows += zip(features, map(label_of, data['data_samples']))
    rows = collect_results(rows, len(loader.dataset), device='cpu')
    if rows is None:
        return None
    return torch.stack([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
