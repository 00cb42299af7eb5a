"""The hatch build hook: the plugin goes into the wheel, and, for an editable install, into the checkout as well."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_plugin


class PluginBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the Javy plugin, or takes it from the cache, for each wheel."""

    def dependencies(self) -> list[str]:
        """What the build environment needs besides: nothing if the plugin is in the cache."""
        return [] if build_plugin.is_cached() else list(build_plugin.REQUIREMENTS)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the plugin and its description to the wheel."""
        try:
            plugin = build_plugin.build()
        except build_plugin.BuildFailed as error:
            sys.exit(f"jeet: the Javy plugin was not built: {error}")
        if plugin.info["sha256"] != build_plugin.recorded_sha256():
            found = plugin.info["sha256"]
            self.app.display_warning(
                f"the Javy plugin's sha256 {found} is not the one in platform/plugin/plugin.sha256"
            )
        if version == "editable":
            plugin.place(build_plugin.PLACE)
            return
        # A standard wheel is built without writing to the source tree, which may belong to somebody else.
        self.folder = tempfile.TemporaryDirectory(prefix="jeet-plugin-wheel-")
        info = Path(self.folder.name) / build_plugin.INFO_NAME
        info.write_text(json.dumps(plugin.info, indent=2) + "\n")
        build_data["force_include"][str(plugin.path)] = f"jeet/sandbox/{build_plugin.WASM_NAME}"
        build_data["force_include"][str(info)] = f"jeet/sandbox/{build_plugin.INFO_NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clean up what the wheel was made of."""
        if version != "editable":
            self.folder.cleanup()
