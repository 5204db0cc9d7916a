// Ctrl-C and SIGTERM as a wish to stop soon.
#pragma once

namespace sluice::tools {

/// While it lives, the first SIGINT or SIGTERM only sets a flag; a second one ends the process as
/// usual, in case it does not get to ask. A signal that is ignored (nohup, a job in the background
/// of a script) stays ignored. At the end of the scope the actions are those from before it. One at
/// a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool requested();
};

}  // namespace sluice::tools
