from paper.efficiency.panels import Panel, draw_panels


def test_a_row_looks_the_same_in_all_panels():
    left = Panel("published", "steps a second", {"flash": [3.0, 2.0], "tnn": [4.0, 3.0]})
    right = Panel("ours", "steps a second", {"elu": [1.0, 0.5], "tnn": [2.0, 1.0], "flash": [2.0]})
    figure = draw_panels([left, right], [1024, 2048], faint=["elu"])
    first, second = figure.axes
    assert [line.get_color() for line in first.lines] == [line.get_color() for line in second.lines[:0:-1]]
    assert list(second.lines[2].get_xdata()) == [1024]  # it did not get further
    assert [text.get_text() for text in figure.legends[0].texts] == ["flash", "tnn"]
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
