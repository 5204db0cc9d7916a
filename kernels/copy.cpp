// Copies run at memory speed when both sides are dense along the inner axis; the element type only
// matters by its size.
#include "kernels/copy.h"

#include <cstring>

namespace sluice::kernels {
namespace {

template <class Word>
void copy_words(CpuContext& context, const CopyArgs& args) {
  auto* to = static_cast<Word*>(args.to);
  const auto* from = static_cast<const Word*>(args.from);
  const auto [to_step, from_step] = args.loop.inner_stride;
  for_each_run(context.threads, args.loop, [&](const auto& offset, int64_t count) {
    Word* out = to + offset[0];
    const Word* in = from + offset[1];
    if (to_step == 1 && from_step == 1) {
      std::memcpy(out, in, size_t(count) * sizeof(Word));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i * to_step] = in[i * from_step];
    }
  });
}

}  // namespace

void copy(CpuContext& context, const CopyArgs& args) {
  switch (args.element_bytes) {
    case 1:
      return copy_words<uint8_t>(context, args);
    case 2:
      return copy_words<uint16_t>(context, args);
    case 4:
      return copy_words<uint32_t>(context, args);
    default:
      return copy_words<uint64_t>(context, args);
  }
}

}  // namespace sluice::kernels
