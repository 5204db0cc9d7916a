#include "kernels/where.h"

namespace sluice::kernels {
namespace {

template <class Word>
void where_words(CpuContext& context, const WhereArgs& args) {
  auto* out = static_cast<Word*>(args.out);
  const auto* a = static_cast<const Word*>(args.a);
  const auto* b = static_cast<const Word*>(args.b);
  const auto [out_step, condition_step, a_step, b_step] = args.loop.inner_stride;
  for_each_run(context.threads, args.loop, [&](const auto& offset, int64_t count) {
    Word* to = out + offset[0];
    const uint8_t* condition = args.condition + offset[1];
    const Word* yes = a + offset[2];
    const Word* no = b + offset[3];
    if (out_step == 1 && condition_step == 1 && a_step == 1 && b_step == 1) {
      for (int64_t i = 0; i < count; ++i) {
        // Both are read whatever the condition: a branch-free loop that is vectorised.
        const Word taken = yes[i], other = no[i];
        to[i] = condition[i] != 0 ? taken : other;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        to[i * out_step] = condition[i * condition_step] != 0 ? yes[i * a_step] : no[i * b_step];
      }
    }
  });
}

}  // namespace

void where(CpuContext& context, const WhereArgs& args) {
  switch (args.element_bytes) {
    case 1:
      return where_words<uint8_t>(context, args);
    case 2:
      return where_words<uint16_t>(context, args);
    case 4:
      return where_words<uint32_t>(context, args);
    default:
      return where_words<uint64_t>(context, args);
  }
}

}  // namespace sluice::kernels
