// See interrupt.h.
#include "tools/interrupt.h"

#include <csignal>
#include <cstddef>
#include <iterator>

namespace sluice::tools {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

constexpr int kSignals[] = {SIGINT, SIGTERM};
struct sigaction previous[std::size(kSignals)];

}  // namespace

InterruptScope::InterruptScope() {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  // SA_RESETHAND gives the second signal its default meaning, SA_RESTART spares every write that
  // is under way an EINTR.
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &previous[i]);
    if (previous[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &previous[i], nullptr);
  }
}

bool InterruptScope::requested() { return stop_requested != 0; }

}  // namespace sluice::tools
