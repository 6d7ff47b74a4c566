"""One typed Python function, served once, callable by everyone."""
__version__ = "0.1.0"
from rpcfast.server import Server
