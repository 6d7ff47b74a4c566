"""Errors: those of the framework, those of one's own with fields, and every wrong parameter at once."""

from typing import Annotated

from msgspec import Meta

from rpcfast import Client, InvalidParams, RPCError, Server

server = Server("bank")
BALANCE = 10


class InsufficientFunds(RPCError):
    """The annotated fields travel in `data`; the code is ours to choose."""

    code = 4001
    balance: int
    needed: int = 0


@server
def withdraw(amount: Annotated[int, Meta(gt=0)], account: str) -> int:
    """Take money out; gives what is left."""
    if amount > BALANCE:
        raise InsufficientFunds(f"{account} has too little", balance=BALANCE, needed=amount)
    return BALANCE - amount


@server
def broken() -> None:
    """Fail without meaning to: the caller learns only that, the server's log has the traceback."""
    raise ZeroDivisionError


def main() -> None:
    """Call it wrongly in three ways."""
    with Client(server) as client:
        try:
            client.withdraw(amount=25, account="Ada")
        except RPCError as error:
            print(error.code, error, error.data)

        try:
            client.withdraw(amount=-1, acount="Ada")
        except InvalidParams as error:
            for entry in error.data["errors"]:
                print(entry["path"], entry["message"])

        try:
            client.broken()
        except RPCError as error:
            print(error.code, error)


if __name__ == "__main__":
    main()
