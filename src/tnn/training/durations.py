"""Times in words."""


def format_time(seconds: float) -> str:
    """In the two largest of hours, minutes and seconds.

    >>> from tnn.training.durations import format_time
    >>> format_time(7384.2), format_time(147.6), format_time(59.4)
    ('2 h 3 min', '2 min 28 s', '59 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
