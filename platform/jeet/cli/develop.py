"""For those who write functions: no database, seconds to feedback."""

from __future__ import annotations

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Record


class Develop(Group):
    """Write functions"""

    @command
    def plugin(self) -> Record:
        """Show which Javy plugin compiles and runs functions.

        JEET_JAVY_PLUGIN names another one. Bytecode is tied to the plugin's hash: functions deployed from source are
        compiled anew when it changes.
        """
        import json

        from jeet.sandbox.engine import Engine
        from jeet.sandbox.plugin import BUILT_IN

        engine = Engine()
        try:
            plugin = engine.load_plugin(self.settings.javy_plugin)
        finally:
            engine.close()
        described = BUILT_IN.with_name("plugin.json")
        known = json.loads(described.read_text()) if plugin.path == BUILT_IN and described.exists() else {}
        return Record(
            {
                "path": str(plugin.path),
                "sha256": plugin.hash,
                "namespace": plugin.namespace,
                "quickjs": known.get("quickjs", "unknown: this plugin does not tell"),
                "built_in": plugin.path == BUILT_IN,
            }
        )
