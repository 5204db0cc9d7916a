// Tokens are read in order and each row is written once, so chunks of tokens are independent.
#include "kernels/gather_rows.h"

#include <cstring>

namespace sluice::kernels {

void gather_rows(CpuContext& context, const GatherRows& args) {
  constexpr int64_t kChunkBytes = int64_t{1} << 17;
  const RoutingView& index = args.index;
  const int64_t total = index.batch * index.tokens;
  const int64_t chunk_tokens = kChunkBytes / (args.row_bytes * index.choices + 64) + 1;
  parallel_for(context.threads, (total + chunk_tokens - 1) / chunk_tokens, [&](int64_t chunk) {
    const int64_t begin = chunk * chunk_tokens;
    const int64_t end = begin + chunk_tokens < total ? begin + chunk_tokens : total;
    for (int64_t token = begin; token < end; ++token) {
      const char* from = static_cast<const char*>(args.x) +
                         token / index.tokens * args.batch_stride +
                         token % index.tokens * args.token_stride;
      for (int64_t i = token * index.choices; i < (token + 1) * index.choices; ++i) {
        if (index.slots[i] < 0 || args.rows[index.ids[i]] == nullptr) continue;
        const int64_t row = index.slots[i] - index.first(index.ids[i]);
        std::memcpy(
            static_cast<char*>(args.rows[index.ids[i]]) + row * args.row_bytes,
            from,
            static_cast<size_t>(args.row_bytes));
      }
    }
  });
}

}  // namespace sluice::kernels
