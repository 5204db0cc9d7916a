// Ctrl-C and SIGTERM as a wish to stop soon.
#pragma once

namespace sluice::tools {

/// While it lives, the first SIGINT or SIGTERM only sets a flag; a second one ends the process as
/// usual, in case it does not get to ask. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool requested();
};

}  // namespace sluice::tools
