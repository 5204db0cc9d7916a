// See record_marks.h.
#include "tools/record_marks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "autograd/autograd.h"
#include "models/batches.h"

namespace sluice::tools {
namespace {

constexpr int64_t kColumns = 96;
constexpr std::array<char, kExperts> kMarks = {'F', 'L', '.'};

std::string_view as_view(std::span<const uint8_t> text) {
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

struct LayerRoutes {
  int64_t layer;
  std::vector<int32_t> ids;  // of the window's queries
};

std::vector<LayerRoutes> routes_of(
    const MetaAttentionLM& model, std::span<const uint8_t> text, int64_t tokens, int64_t start) {
  const autograd::NoGrad no_grad;
  const std::array<int64_t, 1> starts{start};
  const Batch batch = window_batch(text, tokens, starts);
  const ModelOutput output = model.forward(batch.tokens, {}, {.mode = RouteMode::hard});
  std::vector<LayerRoutes> routes;
  for (int64_t layer = 0; layer < model.config().layers; ++layer) {
    if (model.config().kind(layer) != LayerKind::routed) continue;
    const Tensor& ids = output.layers[size_t(layer)].decision.ids;
    routes.push_back({layer + 1, ids.to_vector<int32_t>()});
  }
  return routes;
}

}  // namespace

Passage find_passage(std::span<const uint8_t> text, int64_t tokens) {
  constexpr std::string_view kBegin = "\nPackage: ";
  const std::string_view bytes = as_view(text);
  for (size_t at = 0; (at = bytes.find(kBegin, at)) != std::string_view::npos; ++at) {
    const auto begin = static_cast<int64_t>(at) + 1;
    const size_t blank = bytes.find("\n\n", at + 1);
    if (blank == std::string_view::npos) break;
    const int64_t end = static_cast<int64_t>(blank) + 1;
    const int64_t window = begin / tokens * tokens;
    const bool inside = end <= window + tokens && begin >= window + tokens / 4;
    const bool readable = window + tokens < static_cast<int64_t>(text.size());
    if (inside && readable) return {window, begin, end};
  }
  // Byte 0 has no query that predicts it.
  const int64_t length = std::min<int64_t>(tokens, static_cast<int64_t>(text.size()) - 1);
  return {0, 1, std::min<int64_t>(1 + 8 * kColumns, length)};
}

std::string mark_passage(
    const MetaAttentionLM& model,
    std::span<const uint8_t> text,
    int64_t tokens,
    const Passage& passage) {
  const auto routes = routes_of(model, text, tokens, passage.window_begin);
  std::string marked;
  for (int64_t line = passage.begin; line < passage.end;) {
    int64_t end = line;
    while (end < passage.end && end - line < kColumns && text[size_t(end)] != '\n') ++end;
    marked += std::string(9, ' ');
    for (int64_t i = line; i < end; ++i) {
      const uint8_t byte = text[size_t(i)];
      marked += byte >= 32 && byte < 127 ? static_cast<char>(byte) : '?';
    }
    marked += "\n";
    for (const LayerRoutes& layer : routes) {
      marked += fmt::format("layer {:<3}", layer.layer);
      for (int64_t i = line; i < end; ++i) {
        marked += kMarks[size_t(layer.ids[size_t(i - 1 - passage.window_begin)])];
      }
      marked += "\n";
    }
    line = end < passage.end && text[size_t(end)] == '\n' ? end + 1 : end;
  }
  return marked;
}

}  // namespace sluice::tools
