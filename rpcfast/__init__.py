"""The public names of rpcfast. Holds no logic, and loads no optional library."""

__all__ = ["__version__"]

__version__ = "0.1.0"
