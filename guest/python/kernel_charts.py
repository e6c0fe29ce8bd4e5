"""Describes figures of matplotlib as data: the chart objects of the E2B code interpreter."""
import datetime
import re

POINTS_MAX = 5000


def plain(value):
    """A number or text that JSON can carry."""
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return value if isinstance(value, (int, str)) or value is None else str(value)


def unit_of(label):
    match = re.search(r"\(([^()]+)\)\s*$|\[([^\[\]]+)\]\s*$", label or "")
    return (match.group(1) or match.group(2)) if match else None


def base_of(axes, kind):
    chart = {"type": kind, "title": axes.get_title() or None, "elements": []}
    if kind != "pie":
        x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
        chart.update(x_label=x, y_label=y, x_unit=unit_of(x), y_unit=unit_of(y))
    return chart


def scale_of(axis):
    from matplotlib.category import StrCategoryConverter
    from matplotlib.dates import DateConverter

    converter = getattr(axis, "converter", None)
    if converter is not None and "Date" in type(converter).__name__ or isinstance(converter, DateConverter):
        return "datetime"
    if isinstance(converter, StrCategoryConverter):
        return "categorical"
    return axis.get_scale()


def add_axis(chart, axes, letter):
    axis = axes.xaxis if letter == "x" else axes.yaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    ticks = list(axis.get_ticklocs())
    scale = scale_of(axis)
    if scale == "datetime":
        ticks = dates_of(ticks)
    chart["%s_ticks" % letter] = [plain(tick) for tick in ticks]
    chart["%s_tick_labels" % letter] = labels
    chart["%s_scale" % letter] = scale


def dates_of(numbers):
    from matplotlib.dates import num2date

    return [num2date(number) for number in numbers]


def point_chart(axes, kind, groups):
    chart = base_of(axes, kind)
    add_axis(chart, axes, "x")
    add_axis(chart, axes, "y")
    for label, points in groups:
        chart["elements"].append({
            "label": label,
            "points": [[plain(x), plain(y)] for x, y in points[:POINTS_MAX]],
        })
    return chart


def line_chart(axes):
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 0]
    return point_chart(axes, "line", [
        (str(line.get_label()), list(zip(line.get_xdata(), line.get_ydata()))) for line in lines])


def scatter_chart(axes):
    found = [c for c in axes.collections if type(c).__name__ == "PathCollection"]
    return point_chart(axes, "scatter", [
        (str(c.get_label()), [tuple(point) for point in c.get_offsets()]) for c in found])


def bar_chart(axes, containers):
    chart = base_of(axes, "bar")
    sideways = getattr(containers[0], "orientation", "vertical") == "horizontal"
    axis = axes.yaxis if sideways else axes.xaxis
    names = {round(float(place), 6): label.get_text()
             for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels())}
    for container in containers:
        group = str(container.get_label())
        for patch in container.patches:
            middle = patch.get_y() + patch.get_height() / 2 if sideways \
                else patch.get_x() + patch.get_width() / 2
            value = patch.get_width() if sideways else patch.get_height()
            label = names.get(round(float(middle), 6)) or "%g" % middle
            chart["elements"].append({"label": label, "value": plain(value), "group": group})
    return chart


def pie_chart(axes, wedges):
    chart = base_of(axes, "pie")
    for wedge in wedges:
        label = wedge.get_label()
        chart["elements"].append({"label": "" if label.startswith("_") else label,
                                  "angle": plain(abs(wedge.theta2 - wedge.theta1)),
                                  "radius": plain(wedge.r)})
    return chart


def box_chart(axes, boxes):
    chart = base_of(axes, "box_and_whisker")
    labels = [label.get_text() for label in axes.get_xticklabels()]
    for index, box in enumerate(boxes):
        label = box.get("label") or (labels[index] if index < len(labels) else str(index + 1))
        chart["elements"].append({
            "label": str(label), "min": plain(box["whislo"]), "first_quartile": plain(box["q1"]),
            "median": plain(box["med"]), "third_quartile": plain(box["q3"]),
            "max": plain(box["whishi"]),
            "outliers": [plain(x) for x in list(box.get("fliers", []))[:POINTS_MAX]],
        })
    return chart


def chart_of_axes(axes):
    wedges = [p for p in axes.patches if type(p).__name__ == "Wedge"]
    bars = [c for c in axes.containers if type(c).__name__ == "BarContainer"]
    boxes = getattr(axes, "_kernel_boxes", None)
    if wedges:
        return pie_chart(axes, wedges)
    if boxes:
        return box_chart(axes, boxes)
    if bars:
        return bar_chart(axes, bars)
    if any(type(c).__name__ == "PathCollection" for c in axes.collections):
        return scatter_chart(axes)
    if axes.get_lines():
        return line_chart(axes)
    return base_of(axes, "unknown")


def chart_of(figure):
    """The chart of a figure; of several axes a superchart. None for an empty figure."""
    charts = [chart_of_axes(axes) for axes in figure.axes]
    if len(charts) <= 1:
        return charts[0] if charts else None
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": title.get_text() if title else None, "elements": charts}
