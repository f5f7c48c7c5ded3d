"""Image transforms that mmpretrain lacks."""
import numpy as np
from mmcv.transforms import BaseTransform
from mmpretrain.registry import TRANSFORMS
from PIL import Image
from torchvision.transforms import AutoAugment, AutoAugmentPolicy


@TRANSFORMS.register_module()
class CIFARAutoAugment(BaseTransform):
    """torchvision's AutoAugment (arXiv 1805.09501), whose policy a config can name.

    mmpretrain's own AutoAugment knows ImageNet's policy alone. Random numbers are torch's, as in
    torchvision; what is moved in from outside the image is black.

    Required and modified key: ``img``, uint8 (H, W, 3) in the order **RGB**, as mmpretrain's
    CIFAR-10 and CIFAR-100 hold it. Behind LoadImageFromFile, which gives BGR, put
    ``dict(type='NumpyToPIL', to_rgb=True), dict(type='PILToNumpy')`` first, and
    ``to_rgb=False`` into the data preprocessor.

    Args:
        policy: 'cifar10', 'imagenet' or 'svhn', the data set that it was learned on.

    Raises:
        ValueError: For another policy, and for an image that is not uint8 with three channels.
    """

    def __init__(self, policy: str = 'cifar10') -> None:
        names = [item.value for item in AutoAugmentPolicy]
        if policy not in names:
            raise ValueError(f'policy={policy!r}: expected one of {names}')
        self.augment = AutoAugment(AutoAugmentPolicy(policy))

    def transform(self, results: dict) -> dict:
        """Replace the image."""
        image = results['img']
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f'AutoAugment takes uint8 images (H, W, 3), got {image.dtype} '
                             f'{image.shape}; normalise after it')
        results['img'] = np.array(self.augment(Image.fromarray(image)))
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(policy={self.augment.policy.value!r})'
