"""DCGAN (Radford et al. 2016), two networks that play against each other, in the size of PyTorch's examples.

Its generator has half of the paper's channels. Layers are named as there: the parts load the `state_dict`s of its
two models.
"""

from __future__ import annotations

from typing import Any

from hybridml import Tensor, nn


class Generator(nn.Module):
    """Noise (n, latent, 1, 1) -> images (n, channels, 64, 64) between -1 and 1."""

    def __init__(self, latent: int = 100, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        widths = (8 * width, 4 * width, 2 * width, width)
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent, widths[0], 4, bias=False)]
        for inputs, outputs in zip(widths, (*widths[1:], channels), strict=True):
            layers += [nn.BatchNorm2d(inputs), nn.ReLU()]
            layers.append(nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1, bias=False))
        self.main = nn.Sequential(*layers, nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        return self.main(noise)


class Discriminator(nn.Module):
    """Images (n, channels, 64, 64) -> logits (n,) of that they are real.

    The example's network ends in a sigmoid, which is part of the loss here.
    """

    def __init__(self, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, stride=2, padding=1, bias=False), nn.LeakyReLU(0.2)]
        for inputs in (width, 2 * width, 4 * width):
            layers.append(nn.Conv2d(inputs, 2 * inputs, 4, stride=2, padding=1, bias=False))
            layers += [nn.BatchNorm2d(2 * inputs), nn.LeakyReLU(0.2)]
        self.main = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        return self.main(images).flatten()


class DCGAN(nn.Module):
    """Both players; called with noise (n, latent, 1, 1) it is the generator: images (n, channels, 64, 64)."""

    def __init__(self, latent: int = 100, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        self.generator = Generator(latent, width, channels)
        self.discriminator = Discriminator(width, channels)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.normal_(module.weight, 0.0, 0.02)
            elif isinstance(module, nn.BatchNorm2d) and module.weight is not None:
                nn.init.normal_(module.weight, 1.0, 0.02)

    def forward(self, noise: Tensor) -> Tensor:
        return self.generator(noise)


def dcgan(**options: Any) -> DCGAN:
    """A DCGAN; options are those of `DCGAN`.

    >>> import hybridml as hm
    >>> dcgan(width=4)(hm.zeros((2, 100, 1, 1))).shape
    (2, 3, 64, 64)
    """
    return DCGAN(**options)
