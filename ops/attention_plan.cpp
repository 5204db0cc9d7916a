#include "ops/attention_plan.h"

#include <algorithm>
#include <cmath>

#include "ops/check.h"
#include "ops/head_layout.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

using kernels::AttentionSequence;

// Positions within a sequence are i32 in lists, segment bounds and tiles.
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1024;

void check_operands(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check_floating(q, op, "q");
  check_like(k, q, op, "k");
  check_like(v, q, op, "v");
  for (const auto& [name, tensor] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    SLUICE_CHECK(
        tensor->rank() == 4,
        ShapeError,
        "{}: {} must have rank 4 (B, H, T, D), got {}",
        op,
        name,
        to_string(tensor->shape()));
    SLUICE_CHECK(
        tensor->size(2) <= kMaxTokens,
        ShapeError,
        "{}: {} must have at most {} tokens, got {}",
        op,
        name,
        kMaxTokens,
        tensor->size(2));
  }
  SLUICE_CHECK(
      q.size(3) >= 1 && q.size(3) <= 256,
      ShapeError,
      "{}: head size of q must be in 1..256, got {}",
      op,
      q.size(3));
  require_shape(op, "k", k, {q.size(0), k.size(1), k.size(2), q.size(3)});
  require_shape(op, "v", v, k.shape());
  SLUICE_CHECK(
      k.size(1) >= 1 && q.size(1) % k.size(1) == 0,
      ShapeError,
      "{}: heads of k must divide the {} heads of q, got {}",
      op,
      q.size(1),
      k.size(1));
}

// Values of an optional tensor of integers of the given shape; empty when undefined.
template <class T>
std::vector<T> values(
    const char* op, const char* name, const Tensor& tensor, const Shape& shape, const Tensor& q) {
  if (!tensor.defined()) return {};
  require_shape(op, name, tensor, shape);
  check_dtype(tensor, dtype_of<T>(), op, name);
  check_device(tensor, q.device(), op, name);
  return tensor.to_vector<T>();
}

// A rising run of offsets from 0 to at most `rows`, whatever its length.
std::vector<int32_t> offsets(
    const char* op, const char* name, const Tensor& tensor, int64_t rows, const Tensor& q) {
  SLUICE_CHECK(
      tensor.rank() == 1 && tensor.numel() >= 1,
      ShapeError,
      "{}: {} must have shape (sequences + 1), got {}",
      op,
      name,
      to_string(tensor.shape()));
  auto list = values<int32_t>(op, name, tensor, tensor.shape(), q);
  SLUICE_CHECK(list[0] == 0, ArgumentError, "{}: {} must start with 0, got {}", op, name, list[0]);
  for (size_t s = 1; s < list.size(); ++s) {
    SLUICE_CHECK(
        list[s] >= list[s - 1] && list[s] <= rows,
        ArgumentError,
        "{}: {} must rise to at most {}, got {} after {}",
        op,
        name,
        rows,
        list[s],
        list[s - 1]);
  }
  return list;
}

std::vector<int32_t> lengths(
    const char* op, const char* name, const Tensor& tensor, int64_t rows, const Tensor& q) {
  auto list = values<int32_t>(op, name, tensor, {q.size(0)}, q);
  for (const int32_t length : list) {
    SLUICE_CHECK(
        length >= 0 && length <= rows,
        ArgumentError,
        "{}: {} must be in 0..{}, got {}",
        op,
        name,
        rows,
        length);
  }
  return list;
}

void add_sequences(
    const char* op, const Tensor& q, const AttentionOptions& options, AttentionPlan& plan) {
  const bool packed = options.query_offsets.defined();
  SLUICE_CHECK(
      packed == options.key_offsets.defined(),
      ArgumentError,
      "{}: query_offsets and key_offsets must be given together",
      op);
  const auto query_lengths =
      lengths(op, "query_lengths", options.query_lengths, plan.query_rows, q);
  const auto key_lengths = lengths(op, "key_lengths", options.key_lengths, plan.key_rows, q);
  if (!packed) {
    for (int64_t b = 0; b < plan.batch; ++b) {
      AttentionSequence s{b, 0, plan.query_rows, 0, plan.key_rows, b * plan.key_rows};
      if (!query_lengths.empty()) s.queries = query_lengths[size_t(b)];
      if (!key_lengths.empty()) s.keys = key_lengths[size_t(b)];
      plan.covers_queries &= s.queries == plan.query_rows;
      plan.covers_keys &= s.keys == plan.key_rows;
      plan.sequences.push_back(s);
    }
    return;
  }
  SLUICE_CHECK(
      plan.batch == 1 && query_lengths.empty() && key_lengths.empty(),
      ArgumentError,
      "{}: packed sequences must come with B == 1 and no lengths, got B == {}",
      op,
      plan.batch);
  const auto query_offsets =
      offsets(op, "query_offsets", options.query_offsets, plan.query_rows, q);
  const auto key_offsets = offsets(op, "key_offsets", options.key_offsets, plan.key_rows, q);
  SLUICE_CHECK(
      query_offsets.size() == key_offsets.size(),
      ShapeError,
      "{}: query_offsets and key_offsets must be of one length, got {} and {}",
      op,
      query_offsets.size(),
      key_offsets.size());
  for (size_t s = 0; s + 1 < query_offsets.size(); ++s) {
    plan.sequences.push_back(
        {0,
         query_offsets[s],
         query_offsets[s + 1] - query_offsets[s],
         key_offsets[s],
         key_offsets[s + 1] - key_offsets[s],
         key_offsets[s]});
  }
  plan.covers_queries = query_offsets.back() == plan.query_rows;
  plan.covers_keys = key_offsets.back() == plan.key_rows;
}

void add_segments(
    const char* op, const Tensor& q, const AttentionOptions& options, AttentionPlan& plan) {
  const auto ids =
      values<int32_t>(op, "segments", options.segments, {plan.batch, plan.key_rows}, q);
  if (!options.segments.defined()) return;
  plan.segment_begin.assign(ids.size(), 0);
  plan.segment_end.assign(ids.size(), 0);
  for (const AttentionSequence& s : plan.sequences) {
    for (int64_t begin = 0; begin < s.keys;) {
      int64_t end = begin + 1;
      while (end < s.keys && ids[size_t(s.mask_row + end)] == ids[size_t(s.mask_row + begin)])
        ++end;
      for (int64_t j = begin; j < end; ++j) {
        plan.segment_begin[size_t(s.mask_row + j)] = int32_t(begin);
        plan.segment_end[size_t(s.mask_row + j)] = int32_t(end);
      }
      begin = end;
    }
  }
  plan.problem.segment_begin = plan.segment_begin.data();
  plan.problem.segment_end = plan.segment_end.data();
}

void add_live_heads(
    const char* op, const Tensor& q, const AttentionOptions& options, AttentionPlan& plan) {
  const Tensor& pairs = options.live_heads;
  if (!pairs.defined()) return;
  const Shape shape{pairs.rank() == 2 ? pairs.size(0) : 0, 2};
  const auto list = values<int32_t>(op, "live_heads", pairs, shape, q);
  const int64_t sequences = plan.problem.sequence_count;
  const int64_t heads = plan.problem.heads;
  // One entry at least, so that the pointer is not null: null means that all pairs live.
  plan.live.assign(size_t(sequences * heads) + 1, 0);
  for (size_t p = 0; p < list.size(); p += 2) {
    const int64_t s = list[p];
    const int64_t h = list[p + 1];
    SLUICE_CHECK(
        s >= 0 && s < sequences && h >= 0 && h < heads,
        ArgumentError,
        "{}: live_heads must name a sequence below {} and a head below {}, got ({}, {})",
        op,
        sequences,
        heads,
        s,
        h);
    plan.live[size_t(s * heads + h)] = 1;
  }
  plan.problem.live = plan.live.data();
  plan.covers_queries = false;
}

void add_query_list(const char* op, const Tensor& q, const QueryList& list, AttentionPlan& plan) {
  if (!list.positions.defined() && !list.offsets.defined()) return;
  SLUICE_CHECK(
      list.positions.defined() && list.offsets.defined(),
      ArgumentError,
      "{}: queries must have both positions and offsets",
      op);
  SLUICE_CHECK(
      list.positions.rank() == 1,
      ShapeError,
      "{}: queries.positions must have rank 1, got {}",
      op,
      to_string(list.positions.shape()));
  const int64_t sequences = plan.problem.sequence_count;
  plan.positions =
      values<int32_t>(op, "queries.positions", list.positions, list.positions.shape(), q);
  plan.offsets = values<int32_t>(op, "queries.offsets", list.offsets, {sequences + 1}, q);
  const auto count = int64_t(plan.positions.size());
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t begin = plan.offsets[size_t(s)];
    const int64_t end = plan.offsets[size_t(s) + 1];
    SLUICE_CHECK(
        begin >= 0 && begin <= end && end <= count,
        ArgumentError,
        "{}: queries.offsets must rise within 0..{}, got {} and {}",
        op,
        count,
        begin,
        end);
    const int64_t queries = plan.sequences[size_t(s)].queries;
    for (int64_t n = begin; n < end; ++n) {
      const int64_t position = plan.positions[size_t(n)];
      const int64_t before = n > begin ? plan.positions[size_t(n) - 1] : -1;
      SLUICE_CHECK(
          position > before && position < queries,
          ArgumentError,
          "{}: queries.positions must rise within 0..{} in a sequence, got {} after {}",
          op,
          queries - 1,
          position,
          before);
    }
  }
  // An empty vector may have a null pointer, which would mean every query.
  plan.positions.reserve(1);
  plan.problem.slots = {plan.positions.data(), plan.offsets.data(), false};
  plan.covers_queries = false;
}

}  // namespace

std::shared_ptr<const AttentionPlan> plan_attention(
    const char* op,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionOptions& options,
    int64_t window) {
  check_operands(op, q, k, v);
  auto plan = std::make_shared<AttentionPlan>();
  plan->batch = q.size(0);
  plan->query_rows = q.size(2);
  plan->key_rows = k.size(2);
  add_sequences(op, q, options, *plan);
  kernels::AttentionProblem& problem = plan->problem;
  problem.dtype = q.dtype();
  problem.heads = int(q.size(1));
  problem.kv_heads = int(k.size(1));
  problem.head_size = int(q.size(3));
  problem.scale = options.scale.value_or(1.0 / std::sqrt(double(q.size(3))));
  problem.causal = options.causal;
  // A wider window than any sequence is none; bounded, positions plus window cannot overflow.
  problem.window = std::min(window, kMaxTokens);
  problem.sequences = plan->sequences.data();
  problem.sequence_count = int64_t(plan->sequences.size());
  add_segments(op, q, options, *plan);
  plan->keep = values<uint8_t>(op, "keep", options.keep, {plan->batch, plan->key_rows}, q);
  if (!plan->keep.empty()) problem.keep = plan->keep.data();
  add_live_heads(op, q, options, *plan);
  add_query_list(op, q, options.queries, *plan);
  return plan;
}

kernels::HeadRows head_rows(const Tensor& tensor) { return {tensor.raw(), row_strides(tensor)}; }

}  // namespace sluice::ops
