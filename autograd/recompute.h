// Trading time for memory: a block that keeps only its inputs and runs again in the backward pass.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

/// A pure function of its inputs and of tensors that it captures: run twice it gives the same bits.
/// Random numbers qualify, since they are a function of their key.
using Block = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

/// block(inputs), keeping for the backward pass `inputs` instead of what the block's operations
/// save.
///
/// `parameters` are the captured tensors whose gradients are wanted. They decide, with the inputs,
/// whether anything is recorded; the block reads them through its capture. The backward pass runs
/// the block again, recorded, and goes on through the operations that appear, in the order they
/// would have had: all gradients equal the plain ones bit for bit. Blocks may be nested.
///
/// Grads   those of the block
/// Cost    one more forward of the block; saves its inputs, and during its backward what it saves
/// Throws  GradError in backward when an input or one of `parameters` was written to since, or when
///         the second run gives other shapes than the first; whatever the block throws
/// Source  Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174
std::vector<Tensor> recompute(
    Block block, std::span<const Tensor> inputs, std::span<const Tensor> parameters = {});

/// The same for a block with one input and one output.
Tensor recompute(
    std::function<Tensor(const Tensor& input)> block,
    const Tensor& input,
    std::span<const Tensor> parameters = {});

}  // namespace sluice::autograd
