// The command line of `sluice`.
#pragma once

namespace sluice::tools {

/// Reads the command line and runs the command. Returns the exit status: 0 done, 1 the command
/// failed (one line "sluice: ..." on standard error says why), 2 the command line is wrong.
int run_command_line(int argc, const char* const* argv);

}  // namespace sluice::tools
