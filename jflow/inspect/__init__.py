"""Looking at what will run: pictures of placed graphs."""

from jflow.inspect.picture import picture as picture
from jflow.inspect.picture import save_picture as save_picture
