"""The sentences of mistakes, for the tests of what raises them."""
from collections.abc import Callable
from typing import Any

import pytest

from locat_mmseg.openmmlab.errors import UserError


def mistake(function: Callable, *args: Any) -> str:
    """The sentence of the UserError that a call raises."""
    with pytest.raises(UserError) as raised:
        function(*args)
    return str(raised.value)
