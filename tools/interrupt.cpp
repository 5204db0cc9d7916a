// See interrupt.h.
#include "tools/interrupt.h"

#include <csignal>

namespace sluice::tools {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void set_handler(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope() {
  stop_requested = 0;
  // SA_RESETHAND gives the second signal its default meaning, SA_RESTART spares every write that
  // is under way an EINTR.
  set_handler([](int) { stop_requested = 1; }, int(SA_RESETHAND) | SA_RESTART);
}

InterruptScope::~InterruptScope() { set_handler(SIG_DFL, 0); }

bool InterruptScope::requested() { return stop_requested != 0; }

}  // namespace sluice::tools
