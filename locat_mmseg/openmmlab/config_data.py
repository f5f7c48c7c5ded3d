"""What a config says about the data of its evaluation: loader, pipeline, order of channels."""
from collections.abc import Callable, Sequence

from mmengine.config import Config
from mmengine.dataset import ConcatDataset
from mmengine.registry import DATASETS
from torch.utils.data import Dataset

from .errors import UserError
from .preflight import leaves

Step = dict | Callable
# The arguments of data preprocessors that swap the first channel and the last.
SWAPS = ('to_rgb', 'bgr_to_rgb', 'rgb_to_bgr')


def test_loader_name(cfg: Config) -> str:
    """'test_dataloader', or 'val_dataloader' where there is none.

    Raises:
        UserError: if there is neither.
    """
    for name in ('test_dataloader', 'val_dataloader'):
        if cfg.get(name):
            return name
    raise UserError('the config has no test_dataloader and no val_dataloader: give one with data')


def test_pipelines(cfg: Config) -> list[list[Step]]:
    """The pipeline of each test data set, one inside wrappers too."""
    name = test_loader_name(cfg)
    return [dataset.get('pipeline', []) for _, dataset in leaves(name, cfg[name].dataset)]


def test_pipeline(cfg: Config) -> list[Step]:
    """The pipeline of the first test data set."""
    return test_pipelines(cfg)[0]


def pipeline_or_files(cfg: Config) -> list[Step]:
    """The pipeline of the first test data set; of a config without data, one that reads files."""
    has_data = cfg.get('test_dataloader') or cfg.get('val_dataloader')
    return test_pipeline(cfg) if has_data else [dict(type='LoadImageFromFile')]


def type_of(step: Step) -> str:
    """Bare name of the class of a pipeline's step."""
    kind = step['type'] if isinstance(step, dict) else type(step)
    return getattr(kind, '__name__', str(kind)).rpartition('.')[2]


def normalize_steps(pipeline: Sequence[Step]) -> list[dict]:
    """The steps of a pipeline that normalise."""
    return [step for step in pipeline if type_of(step) == 'Normalize']


def build_dataset(config: dict, key: str, pipeline: list[Step]) -> Dataset:
    """A data set, out of wrappers that repeat or weigh images, with another pipeline."""
    parts = [DATASETS.build(dict(part, pipeline=pipeline)) for _, part in leaves(key, config)]
    return parts[0] if len(parts) == 1 else ConcatDataset(parts)


def preprocessor_of(cfg: Config) -> dict:
    """The data preprocessor's settings, where OpenMMLab's Runner looks for them."""
    settings = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    return dict(dict(type='ClsDataPreprocessor'), **settings)


def loads_bgr(pipeline: Sequence[Step]) -> bool:
    """Whether images come with blue first: files do, arrays in a data set (CIFAR) do not."""
    return any(type_of(step) == 'LoadImageFromFile' for step in pipeline)


def swaps_channels(preprocessor: dict) -> bool:
    """Whether a data preprocessor swaps the first channel and the last."""
    return any(preprocessor.get(name) for name in SWAPS)


def swapped(preprocessor: dict) -> dict[str, bool]:
    """What to set in a data preprocessor so that channels come out in the other order."""
    if swaps_channels(preprocessor):
        return {name: False for name in SWAPS if name in preprocessor}
    bare = type_of(preprocessor) == 'ClsDataPreprocessor'  # mmpretrain's own word
    return {'to_rgb' if bare else 'bgr_to_rgb': True}


def takes_bgr(cfg: Config) -> bool:
    """Whether the network takes blue first, after all that swaps channels on the way to it: a
    Normalize in the test pipeline and the data preprocessor."""
    pipeline = pipeline_or_files(cfg)
    bgr = loads_bgr(pipeline) ^ swaps_channels(preprocessor_of(cfg))
    for step in normalize_steps(pipeline):
        bgr ^= step.get('to_rgb', True)
    return bgr


def normalization(cfg: Config) -> tuple[list[float], list[float]]:
    """Mean and std for pixels in [0, 1], in the order of channels that the network takes.

    Raises:
        UserError: nothing in the config normalises.
    """
    preprocessor = preprocessor_of(cfg)
    steps = [preprocessor] if preprocessor.get('mean') else normalize_steps(pipeline_or_files(cfg))
    if not steps:
        raise UserError('the config tells no normalisation: expected mean and std in '
                        'data_preprocessor or a Normalize in the pipeline of test_dataloader')
    mean, std = ([value / 255 for value in steps[0][name]] for name in ('mean', 'std'))
    if swaps_channels(preprocessor) and steps[0] is not preprocessor:  # what is normalised already
        mean, std = mean[::-1], std[::-1]
    return mean, std
