// Softmax attention, backward. Query tiles are the outer loop: a tile's grad_q stays in the nearest
// cache, the sums of grad_k and grad_v of one key head stay in the next, and one thread owns them.
// attention_partition.h has the order of the sums when several threads share a key head.
#include "kernels/attention.h"
#include "kernels/attention_backward_tile.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// The tiles of one (sequence, key head), numbered head by head.
struct PairWork {
  const AttentionBackward& args;
  int64_t sequence;
  int kv_head;

  SLUICE_INLINE int64_t tiles() const { return tiles_of(args.query_count(sequence)); }
  SLUICE_INLINE int group() const { return args.heads / args.kv_heads; }
  SLUICE_INLINE int sets() const { return backward_sets(tiles() * group()); }
  /// First tile of a set; sets() gives the end.
  SLUICE_INLINE int64_t set_begin(int set) const { return tiles() * group() * set / sets(); }
  SLUICE_INLINE QueryTileWork tile(int64_t number) const {
    const int head = kv_head * group() + static_cast<int>(number / tiles());
    const int64_t first = number % tiles() * kQueryTile;
    const int64_t left = args.query_count(sequence) - first;
    return {sequence, head, first, static_cast<int>(left < kQueryTile ? left : kQueryTile)};
  }
  /// Keys that the queries of a set see, in whole key groups.
  SLUICE_INLINE KeySpan keys_of_set(int set) const {
    const KeyRange range = args.key_range(args.sequences[sequence]);
    SpanBounds bounds;
    for (int64_t number = set_begin(set); number < set_begin(set + 1); ++number) {
      const QueryTileWork work = tile(number);
      if (!args.is_live(sequence, work.head)) continue;
      for (int n = 0; n < work.count; ++n) {
        const KeySpan span = range(args.query(sequence, work.first + n));
        bounds.add(static_cast<int>(span.first), static_cast<int>(span.last));
      }
    }
    if (bounds.lowest_first >= bounds.highest_last) return {};
    return {
        bounds.lowest_first / kKeyGroup * kKeyGroup,
        (int64_t{bounds.highest_last} + kKeyGroup - 1) / kKeyGroup * kKeyGroup};
  }
};

// Runs the tiles of a set, adding to `sums`.
template <class T>
SLUICE_INLINE void run_set(
    const PairWork& pair, int set, KeySums<Accumulator<T>> sums, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  for (int64_t number = pair.set_begin(set); number < pair.set_begin(set + 1); ++number) {
    const QueryTileWork work = pair.tile(number);
    if (!pair.args.is_live(work.sequence, work.head)) continue;
    if constexpr (Vec<A>::kLanes == 16) {
      if (is_narrow(pair.args, work)) {
        differentiate_tile<T, 1>(pair.args, work, scratch, sums);
        continue;
      }
    }
    differentiate_tile<T, kLaneVectors<A>>(pair.args, work, scratch, sums);
  }
}

// The two buffers of sums at `memory`; one that nobody wants is null.
template <class A>
SLUICE_INLINE KeySums<A> sums_at(
    const AttentionBackward& args, const BackwardScratch& layout, char* memory) {
  auto* first = reinterpret_cast<A*>(memory);
  A* second = first + layout.sum_rows * padded_width(args.head_size);
  return {
      args.grad_k.data == nullptr ? nullptr : first,
      args.grad_v.data == nullptr ? nullptr : second};
}

template <class A>
SLUICE_INLINE void zero_sums(KeySums<A> sums, KeySpan keys, int padded) {
  for (A* sum : {sums.keys, sums.values}) {
    if (sum != nullptr) zero_rows(sum + keys.first * padded, keys.last - keys.first, padded);
  }
}

template <class A>
SLUICE_INLINE void add_sums(KeySums<A> to, KeySums<A> from, KeySpan keys, int padded) {
  const int64_t begin = keys.first * padded;
  const int64_t end = keys.last * padded;
  for (int64_t i = begin; to.keys != nullptr && i < end; i += Vec<A>::kLanes) {
    store(to.keys + i, load(to.keys + i) + load(from.keys + i));
  }
  for (int64_t i = begin; to.values != nullptr && i < end; i += Vec<A>::kLanes) {
    store(to.values + i, load(to.values + i) + load(from.values + i));
  }
}

// Stores the sums of `keys`; row 0 of `sums` is key `keys.first`.
template <class T>
SLUICE_INLINE void write_sums(const PairWork& pair, KeySpan keys, KeySums<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  const AttentionBackward& args = pair.args;
  const AttentionSequence& sequence = args.sequences[pair.sequence];
  const auto write = [&](const A* from, const HeadRows& rows) {
    if (from == nullptr) return;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const A* row = from + (j - keys.first) * padded_width(args.head_size);
      const int64_t at = rows.offset(sequence.batch, pair.kv_head, sequence.key_row + j);
      if (args.kv_grad_dtype == args.dtype) {
        store_row(row, args.head_size, args.accumulate, static_cast<T*>(rows.data) + at);
      } else {
        store_row(row, args.head_size, args.accumulate, static_cast<A*>(rows.data) + at);
      }
    }
  };
  write(sums.keys, args.grad_k);
  write(sums.values, args.grad_v);
}

// One thread per (sequence, key head).
template <class T>
SLUICE_INLINE void run_pairs(
    CpuContext& context, const AttentionBackward& args, const BackwardScratch& layout) {
  using A = Accumulator<T>;
  auto* scratch = static_cast<char*>(args.scratch);
  const int padded = padded_width(args.head_size);
  parallel_for(
      context.threads, args.sequence_count * args.kv_heads, [&](int64_t chunk, int thread) {
        const PairWork pair{args, chunk / args.kv_heads, static_cast<int>(chunk % args.kv_heads)};
        char* own =
            scratch + layout.thread_offset + static_cast<size_t>(thread) * layout.thread_bytes;
        auto* buffer = reinterpret_cast<A*>(own + layout.thread_sums * layout.sums_bytes);
        const auto total = sums_at<A>(args, layout, own);
        const auto part = sums_at<A>(args, layout, own + layout.sums_bytes);
        const int64_t keys = args.sequences[pair.sequence].keys;
        zero_sums(total, {0, (keys + kKeyGroup - 1) / kKeyGroup * kKeyGroup}, padded);
        run_set<T>(pair, 0, total, buffer);
        for (int set = 1; set < pair.sets(); ++set) {
          const KeySpan seen = pair.keys_of_set(set);
          zero_sums(part, seen, padded);
          run_set<T>(pair, set, part, buffer);
          add_sums(total, part, seen, padded);
        }
        write_sums<T>(pair, {0, keys}, total);
      });
}

// One thread per set, then one per block of keys to add the sets up, in the order of run_pairs.
template <class T>
SLUICE_INLINE void run_sets(
    CpuContext& context, const AttentionBackward& args, const BackwardScratch& layout) {
  using A = Accumulator<T>;
  auto* scratch = static_cast<char*>(args.scratch);
  auto* spans = reinterpret_cast<KeySpan*>(scratch);
  char* sums = scratch + layout.sums_offset;
  const int padded = padded_width(args.head_size);
  const int64_t pairs = args.sequence_count * args.kv_heads;
  const auto pair_at = [&](int64_t number) {
    return PairWork{args, number / args.kv_heads, static_cast<int>(number % args.kv_heads)};
  };
  const auto index = [&](int64_t pair, int set) {
    return static_cast<size_t>(pair * layout.sets + set);
  };
  // Last set first: under a causal mask it is the longest.
  parallel_for(context.threads, pairs * layout.sets, [&](int64_t chunk, int thread) {
    const int64_t number = chunk % pairs;
    const int set = layout.sets - 1 - static_cast<int>(chunk / pairs);
    const PairWork pair = pair_at(number);
    if (set >= pair.sets()) return;
    char* own = scratch + layout.thread_offset + static_cast<size_t>(thread) * layout.thread_bytes;
    const auto part = sums_at<A>(args, layout, sums + index(number, set) * layout.sums_bytes);
    const KeySpan seen = pair.keys_of_set(set);
    spans[index(number, set)] = seen;
    zero_sums(part, seen, padded);
    run_set<T>(pair, set, part, reinterpret_cast<A*>(own));
  });
  const int64_t blocks = (layout.sum_rows + kKeyBlock - 1) / kKeyBlock;
  parallel_for(context.threads, pairs * blocks, [&](int64_t chunk, int) {
    const PairWork pair = pair_at(chunk / blocks);
    const int64_t begin = chunk % blocks * kKeyBlock;
    const int64_t keys = args.sequences[pair.sequence].keys;
    const int64_t end = begin + kKeyBlock < keys ? begin + kKeyBlock : keys;
    // The first set's buffer takes the sum; rows that this set did not touch start from zero.
    const auto total =
        sums_at<A>(args, layout, sums + index(chunk / blocks, 0) * layout.sums_bytes);
    const KeySpan first = spans[index(chunk / blocks, 0)];
    for (int64_t key = begin; key < end; ++key) {
      if (key < first.first || key >= first.last) zero_sums(total, {key, key + 1}, padded);
    }
    for (int set = 1; set < pair.sets(); ++set) {
      const auto part =
          sums_at<A>(args, layout, sums + index(chunk / blocks, set) * layout.sums_bytes);
      KeySpan seen = spans[index(chunk / blocks, set)];
      if (seen.first < begin) seen.first = begin;
      if (seen.last > end) seen.last = end;
      add_sums(total, part, seen, padded);
    }
    const int64_t offset = begin * padded;
    write_sums<T>(
        pair,
        {begin, end},
        {total.keys == nullptr ? nullptr : total.keys + offset,
         total.values == nullptr ? nullptr : total.values + offset});
  });
}

}  // namespace

void attention_backward(CpuContext& context, const AttentionBackward& args) {
  const BackwardScratch layout = backward_scratch(args, context.threads.size());
  dispatch_floating(args.dtype, [&]<class T>() {
    layout.concurrent ? run_sets<T>(context, args, layout) : run_pairs<T>(context, args, layout);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(attention_backward, AttentionBackward)
