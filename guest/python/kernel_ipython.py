"""IPython's own shell for the kernel, where IPython is installed: its magics, `object?`, history and formatters.

The kernel runs cells itself; the shell translates what is not Python and does what the translation calls. Code that a magic
runs (%run, %%capture) goes through the shell, so its results and errors are sent from here.
"""
import os
import tempfile

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import SList
from traitlets import Type
from traitlets.config import Config


class Hook(DisplayHook):
    def __call__(self, result=None):
        if result is not None and not self.quiet():
            KernelShell.kernel.remember(result)
            KernelShell.kernel.show(result, True)


class Publisher(DisplayPublisher):
    def publish(self, data, *_args, **_options):
        KernelShell.kernel.publish(data)

    def clear_output(self, wait=False):
        pass


class KernelShell(InteractiveShell):
    kernel = None  # of this process
    display_pub_class, displayhook_class = Type(Publisher), Type(Hook)

    def system(self, cmd):
        self.kernel.run_shell(self.var_expand(cmd, depth=1))

    system_piped = system_raw = system

    def getoutput(self, cmd, split=True, depth=0):
        lines = self.kernel.capture(self.var_expand(cmd, depth=depth + 1))
        return SList(lines) if split else "\n".join(lines)

    def enable_matplotlib(self, gui=None):
        """Figures are shown by the kernel, whatever is asked for."""
        return gui, "agg"

    def enable_gui(self, gui=None):
        pass

    def showtraceback(self, exc_tuple=None, *_args, **_options):
        self.kernel.report(self._get_exc_info(exc_tuple)[1])

    def showsyntaxerror(self, *_args, **_options):
        self.showtraceback()


def show_in_pager(_shell, data, *_args, **_options):
    print(data.get("text/plain", "") if isinstance(data, dict) else data)


def make_shell(kernel):
    config = Config()
    config.HistoryManager.enabled = False  # the database belongs to the home directory
    config.InteractiveShell.colors = "NoColor"
    KernelShell.kernel = kernel
    place = os.path.join(tempfile.gettempdir(), ".cloche-ipython-%d" % os.getpid())
    shell = KernelShell.instance(config=config, user_module=kernel.main, ipython_dir=place)
    shell.history_manager.input_hist_parsed = shell.history_manager.input_hist_raw = kernel.inputs
    shell.history_manager.output_hist = kernel.outputs
    shell.user_ns_hidden.update(kernel.set_names())
    shell.set_hook("show_in_pager", show_in_pager, 0)
    return shell
