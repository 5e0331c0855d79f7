"""Drawings as parts of a page: what they name and how they look stays theirs, and they follow the page's dark mode."""

import copy
import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
SMALLEST_LETTERS = 11


def rules(css):
    """(what stands before the brace, what stands in it) for each rule."""
    depth, begin, brace = 0, 0, 0
    for at, character in enumerate(css):
        if character == "{":
            depth += 1
            brace = at if depth == 1 else brace
        elif character == "}":
            depth -= 1
            if depth == 0:
                yield css[begin:brace].strip(), css[brace + 1 : at]
                begin = at + 1


def scoped(css, scope):
    """The rules for what is below `scope` only, and dark ones where the page is dark, not where the system is."""
    result = ""
    for before, inside in rules(css):
        if before.startswith("@keyframes"):
            result += f"{before} {{{inside}}}\n"
        elif before == "@media (prefers-color-scheme: dark)":
            chosen, unless = ':where(body[data-theme="dark"])', ':where(body:not([data-theme="light"]))'
            result += scoped(inside, f"{chosen} {scope}") + f"{before} {{ {scoped(inside, f'{unless} {scope}')} }}\n"
        elif before.startswith("@"):
            result += f"{before} {{ {scoped(inside, scope)} }}\n"
        else:
            result += ", ".join(f"{scope} {one.strip()}" for one in before.split(",")) + f" {{{inside}}}\n"
    return result


def inline_svg(path, alt):
    """The drawing as a part of a page, whose other drawings may have the same names."""
    name = "figure-" + path.stem
    root = ElementTree.parse(path).getroot()
    _, _, width, height = root.get("viewBox").split()
    kept = {key: root.get(key) for key in ("viewBox", "font-family", "font-size") if root.get(key)}
    for title in root.findall(SVG + "title"):
        root.remove(title)  # it would hide the others as a tooltip
    put_in_place_of_uses(root)
    for element in root.iter():
        for key, value in element.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif "url(#" in value or key == "href":
                element.set(key, value.replace("#", f"#{name}-"))
            elif key == "font-size" and float(value) < SMALLEST_LETTERS:
                element.set(key, str(SMALLEST_LETTERS))
    for style in root.iter(SVG + "style"):
        css = style.text
        for animation in re.findall(r"@keyframes ([\w-]+)", css):
            css = re.sub(rf"(@keyframes |animation(?:-name)?:\s*){animation}\b", rf"\1{name}-{animation}", css)
        style.text = "\n" + scoped(css, "#" + name)
    root.attrib = {"role": "img", "id": name, "aria-label": alt, "width": width, "height": height, **kept}
    ElementTree.register_namespace("", SVG.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def put_in_place_of_uses(root):
    """Copies in place of references to an element: rules for what is below the drawing do not reach those."""
    by_name = {element.get("id"): element for element in root.iter()}
    for use in list(root.iter(SVG + "use")):
        original = copy.deepcopy(by_name[use.attrib.pop("href").removeprefix("#")])
        for element in original.iter():
            element.attrib.pop("id", None)
        use.tag = SVG + "g"
        use.append(original)
