// See progress.h.
#include "models/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace sluice {
namespace {

using std::chrono::duration;
using namespace std::chrono_literals;

size_t terminal_columns(std::FILE* file) {
  winsize size{};
  const bool known = ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string short_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

bool is_terminal(std::FILE* file) { return ::isatty(::fileno(file)) == 1; }

Progress::Progress(Options options, Clock::time_point now)
    : options_(std::move(options)), begin_(now), drawn_(now), done_(options_.done) {
  if (options_.terminal) draw(now);
}

Progress::~Progress() {
  if (options_.terminal && !finished_) fmt::print(options_.output, "\n");
}

void Progress::update(int64_t done, const std::string& text, Clock::time_point now) {
  done_ = done;
  text_ = text;
  if (now - drawn_ >= (options_.terminal ? Clock::duration(200ms) : Clock::duration(1min))) {
    draw(now);
  }
}

void Progress::finish(Clock::time_point now) {
  draw(now);
  if (options_.terminal) fmt::print(options_.output, "\n");
  finished_ = true;
}

std::string Progress::line(Clock::time_point now) const {
  constexpr int64_t kCells = 20;
  const int64_t total = std::max<int64_t>(1, options_.total);
  const auto filled = static_cast<size_t>(kCells * std::min(done_, total) / total);
  std::string text = fmt::format(
      "{} [{}{}] {}/{}",
      options_.name,
      std::string(filled, '#'),
      std::string(kCells - filled, '-'),
      done_,
      options_.total);
  const double seconds = duration<double>(now - begin_).count();
  const auto steps = static_cast<double>(done_ - options_.done);
  if (steps > 0 && seconds > 0) {
    if (options_.units_per_step > 0) {
      const double speed = steps * static_cast<double>(options_.units_per_step) / seconds;
      text += fmt::format("  {} {}", short_number(speed), options_.unit);
    }
    const double left = static_cast<double>(options_.total - done_) * seconds / steps;
    text += done_ < options_.total ? "  " + short_time(left) + " left" : "  " + short_time(seconds);
  }
  return text_.empty() ? text : text + "  " + text_;
}

void Progress::draw(Clock::time_point now) {
  drawn_ = now;
  std::string text = line(now);
  if (!options_.terminal) {
    fmt::print(options_.output, "{}\n", text);
  } else {
    // A line that wraps could not be redrawn in place.
    const size_t columns = terminal_columns(options_.output);
    if (text.size() >= columns) text.resize(columns - 1);
    fmt::print(options_.output, "\r{}\x1b[K", text);
  }
  std::fflush(options_.output);
}

}  // namespace sluice
