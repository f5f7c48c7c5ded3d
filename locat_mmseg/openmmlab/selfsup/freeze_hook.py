"""A layer that stays as it is in the first epochs."""
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch.optim import Optimizer

from ..errors import UserError
from ..hooks import unwrap


@HOOKS.register_module()
class FreezeLayerHook(Hook):
    """Trains a layer only after the first epochs, as DINO does with its head's last layer.

    Its gradients are dropped right before each step of the optimizer, so neither the update nor
    weight decay moves it. Switching ``requires_grad`` instead would break
    DistributedDataParallel, which waits for the gradients that it knows from its construction.

    Args:
        layer: name of the module, such as 'head.last_layer'.
        epochs: how many.
    """

    def __init__(self, layer: str, epochs: int = 1) -> None:
        self.layer = layer
        self.epochs = epochs

    def before_train(self, runner: Runner) -> None:
        """Have the optimizer skip the layer.

        Raises:
            UserError: The model has no such layer.
        """
        model = unwrap(runner.model)
        try:
            parameters = list(model.get_submodule(self.layer).parameters())
        except AttributeError as error:
            raise UserError(f"FreezeLayerHook: {type(model).__name__} has no module '{self.layer}' "
                            f'({error}): name one of the model, or leave out the hook') from error

        def drop_gradients(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            if runner.epoch < self.epochs:
                for parameter in parameters:
                    parameter.grad = None

        runner.optim_wrapper.optimizer.register_step_pre_hook(drop_gradients)
