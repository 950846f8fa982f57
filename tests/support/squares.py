"""Work for processes to do; they import this module alone."""


def square(number: int) -> int:
    """The number times itself."""
    if number == 13:
        raise ValueError("unlucky")
    return number * number
