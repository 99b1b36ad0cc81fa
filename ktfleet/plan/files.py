"""The files placed on a host: rendered from templates/, whose paths are the files' destinations."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ktfleet.plan import Plan
from ktfleet.plan.row import Writer

TEMPLATES = Path(__file__).parents[2] / "templates"
SUFFIX = ".j2"


@dataclass(frozen=True)
class File:
    """One file on a host. `content` None: it must not exist. `mode` is octal text, taken from the template."""

    path: str
    content: str | None
    mode: str

    @property
    def sha256(self) -> str | None:
        """Hex digest of the content, None when the file must not exist."""
        return None if self.content is None else hashlib.sha256(self.content.encode()).hexdigest()


def paths(templates: Path = TEMPLATES) -> tuple[str, ...]:
    """The destinations of all templates."""
    found = (template.relative_to(templates) for template in templates.rglob(f"*{SUFFIX}"))
    return tuple(sorted(f"/{str(path).removesuffix(SUFFIX)}" for path in found))


def render(plan: Plan, path: str, templates: Path = TEMPLATES) -> File:
    """Render the template of the file at `path`. A template that renders to white space means: no such file."""
    # Configuration files for a shell-less reader: HTML escaping would corrupt them.
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    name = path.removeprefix("/") + SUFFIX
    text = environment.get_template(name).render(plan=plan, Writer=Writer)
    executable = (templates / name).stat().st_mode & stat.S_IXUSR
    return File(path, text if text.strip() else None, "0755" if executable else "0644")
