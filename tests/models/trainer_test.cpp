// Training steps: they learn, they repeat, they resume, and they refuse what does not fit.
#include "models/trainer.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "autograd/autograd.h"
#include "engine/context.h"
#include "engine/errors.h"
#include "models/evaluate.h"
#include "models/generate.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

TextData sample_text() {
  TextData text;
  text.path = "sample";
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i * 7919 % 1000);
    const std::string record = "Package: p" + number + "\nFilename: pool/p" + number + "\n\n";
    text.bytes.insert(text.bytes.end(), record.begin(), record.end());
  }
  text.held_out_begin = int64_t(text.bytes.size()) * 9 / 10;
  return text;
}

RunConfig small_config() {
  RunConfig config;
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.feed_forward = 64;
  config.model.context = 48;
  config.model.window = 8;
  config.model.controller_width = 8;
  config.model.target_cost = 0.5;
  config.model.phases = {
      {0.5, RouteMode::soft, false, 1.0}, {1.0, RouteMode::straight_through, true, 1.0}};
  config.train.steps = 8;
  config.train.batch = 2;
  config.train.tokens = 48;
  config.train.warmup = 2;
  config.train.statistics_every = 2;
  return config;
}

/// Losses of all steps and the final parameters.
struct Trace {
  std::vector<double> losses;
  std::vector<NamedTensor> state;
};

Trace train_on(Trainer& trainer) {
  Trace trace;
  while (!trainer.finished()) trace.losses.push_back(trainer.step().loss);
  for (const NamedTensor& tensor : state_tensors(trainer.model())) {
    trace.state.push_back({tensor.name, clone(tensor.tensor)});
  }
  return trace;
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (size_t i = 0; i < a.state.size(); ++i) {
    EXPECT_TRUE(testing::bit_equal(a.state[i].tensor, b.state[i].tensor, a.state[i].name));
  }
}

TEST(Trainer, LearnsARepeatedText) {
  RunConfig config = small_config();
  config.train.steps = 60;
  config.train.learning_rate = 1e-2;
  Trainer trainer(config, sample_text());
  const double before = trainer.step().loss;
  EXPECT_NEAR(before, std::log(256.0), 0.3);
  double after = 0;
  while (!trainer.finished()) after = trainer.step().loss;
  EXPECT_LT(after, 0.6 * before);
}

TEST(Trainer, SameBitsForAnyThreadCount) {
  Trace traces[2];
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    Trainer trainer(small_config(), sample_text());
    traces[threads - 1] = train_on(trainer);
  }
  expect_same(traces[0], traces[1]);
}

TEST(Trainer, RestoredInAnyStepContinuesWithTheSameBits) {
  const testing::TemporaryFolder folder;
  Trainer whole(small_config(), sample_text());
  const Trace expected = train_on(whole);
  for (const int64_t stop : {int64_t{1}, int64_t{4}, int64_t{7}}) {
    Trainer first(small_config(), sample_text());
    Trace trace;
    while (first.steps_done() < stop) trace.losses.push_back(first.step().loss);
    const std::string saved = save_checkpoint(folder / std::to_string(stop), first.checkpoint());
    Trainer second(small_config(), sample_text());
    second.restore(saved);
    const Trace rest = train_on(second);
    trace.losses.insert(trace.losses.end(), rest.losses.begin(), rest.losses.end());
    trace.state = rest.state;
    expect_same(expected, trace);
  }
}

TEST(Trainer, AccumulationEqualsALargerBatch) {
  // Dense layers: routing noise is drawn per forward pass, so it would differ.
  RunConfig config = small_config();
  config.model.layer_kinds = {"window", "full"};
  config.train.batch = 4;
  Trainer together(config, sample_text());
  config.train.batch = 2;
  config.train.accumulation = 2;
  Trainer parts(config, sample_text());
  for (int step = 0; step < 3; ++step) {
    EXPECT_NEAR(together.step().loss, parts.step().loss, 2e-5) << step;
  }
}

TEST(Trainer, GivenLayersFollowTheFields) {
  RunConfig config = small_config();
  config.model.layer_kinds = {"given"};
  config.train.steps = 2;
  config.train.warmup = 0;
  Trainer trainer(config, sample_text());
  trainer.step();
  const Evaluation evaluation = evaluate(
      trainer.model(),
      trainer.text().held_out(),
      {.tokens = 48,
       .windows = 4,
       .value_fields = config.data.value_fields,
       .given_fields = config.data.given_fields});
  for (const LayerShares& layer : evaluation.layers) {
    EXPECT_EQ(layer.value[0], 1.0);
    EXPECT_EQ(layer.other[0], 0.0);
    EXPECT_EQ(layer.other[size_t(Expert::window)], 1.0);
  }
  EXPECT_GT(evaluation.value_bytes, 0);
}

TEST(Trainer, StatisticsComeInTheirSteps) {
  Trainer trainer(small_config(), sample_text());
  EXPECT_TRUE(trainer.step().layers.empty());
  EXPECT_EQ(trainer.step().layers.size(), 2u);
}

TEST(Trainer, RefusesAnotherConfigurationOrText) {
  const testing::TemporaryFolder folder;
  Trainer trainer(small_config(), sample_text());
  trainer.step();
  const std::string saved = save_checkpoint(folder.path(), trainer.checkpoint());
  RunConfig other = small_config();
  other.model.window = 9;
  other.train.clip = 2;
  other.train.checkpoint_every = 3;  // changes no number of the run
  other.data.text = "elsewhere";
  Trainer differs(other, sample_text());
  SLUICE_EXPECT_THROW(
      differs.restore(saved),
      ArgumentError,
      "config.model.window: 9 here, 8 there; config.train.clip: 2.0 here, 1.0 there");
  for (const char* config : {"null", "[]", R"({"data": 3, "train": []})"}) {
    const std::string path = folder / "damaged";
    std::filesystem::create_directories(path);
    std::ofstream(path + "/state.json")
        << R"({"format": 1, "step": 1, "config": )" << config << "}";
    SLUICE_EXPECT_THROW(trainer.restore(path), ArgumentError, "cannot be resumed by this run");
  }
  TextData text = sample_text();
  text.bytes[0] ^= 1;
  Trainer rewritten(small_config(), text);
  SLUICE_EXPECT_THROW(rewritten.restore(saved), ArgumentError, "text.fingerprint");
  text.bytes.resize(100);
  text.held_out_begin = 90;
  SLUICE_EXPECT_THROW(Trainer(small_config(), text), ArgumentError, "is too short");
}

TEST(Trainer, ALossThatIsNotFiniteChangesNothing) {
  RunConfig config = small_config();
  Trainer trainer(config, sample_text());
  trainer.step();
  const NamedTensor embedding = trainer.model().parameters().front();
  copy_into(embedding.tensor, full(embedding.tensor.shape(), NAN));
  const auto weights = [&trainer] { return clone(trainer.model().parameters()[3].tensor); };
  const Tensor before = weights();
  SLUICE_EXPECT_THROW(trainer.step(), Error, "training: the loss is nan at step 2");
  EXPECT_TRUE(testing::bit_equal(weights(), before));
  EXPECT_EQ(trainer.steps_done(), 1);
}

Tensor parameter_of(const Trainer& trainer, const std::string& name) {
  for (const NamedTensor& parameter : trainer.model().parameters()) {
    if (parameter.name == name) return parameter.tensor;
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

// A row of weights that is no distribution draws the route -1.
TEST(Trainer, ARouterThatIsNotFiniteChangesNothing) {
  RunConfig config = small_config();
  config.model.phases = {{1.0, RouteMode::straight_through, true, 1.0}};
  config.train.accumulation = 2;
  for (const char* name : {"embedding.weight", "layers.1.attention.controller.counts.bias"}) {
    Trainer trainer(config, sample_text());
    trainer.step();
    fill(parameter_of(trainer, name), NAN);
    std::vector<Tensor> before;
    for (const NamedTensor& tensor : state_tensors(trainer.model())) {
      before.push_back(clone(tensor.tensor));
    }
    SLUICE_EXPECT_THROW(trainer.step(), Error, "training: the loss is nan at step 2");
    const auto after = state_tensors(trainer.model());
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(testing::bit_equal(after[i].tensor, before[i], after[i].name));
    }
    for (const NamedTensor& parameter : trainer.model().parameters()) {
      EXPECT_FALSE(autograd::grad(parameter.tensor).defined()) << parameter.name;
    }
    EXPECT_EQ(trainer.steps_done(), 1);
  }
}

// As a step leaves them that ended in an exception between two of its parts.
TEST(Trainer, GradientsLeftByAnEarlierStepDoNotCount) {
  Trainer clean(small_config(), sample_text());
  const StepReport expected = clean.step();
  Trainer trainer(small_config(), sample_text());
  for (const NamedTensor& parameter : trainer.model().parameters()) {
    autograd::set_grad(parameter.tensor, full(parameter.tensor.shape(), 3));
  }
  EXPECT_EQ(trainer.step().gradient_norm, expected.gradient_norm);
}

TEST(Trainer, AGradientThatIsNotFiniteChangesNothing) {
  for (const double clip : {0.0, 1.0}) {
    RunConfig config = small_config();
    config.model.phases = {{1.0, RouteMode::straight_through, true, 1.0}};
    config.model.target_cost = 0.01;
    config.train.clip = clip;
    Trainer trainer(config, sample_text());
    trainer.step();
    // Hidden values near 1e37 that a zero matrix hides from the loss, but not from its gradient.
    const Tensor up = parameter_of(trainer, "layers.1.feed_forward.up.weight");
    copy_into(up, randn(up.shape(), 3));
    for (int64_t i = 0; i < up.numel(); ++i) up.data<float>()[i] *= 1e37f;
    fill(parameter_of(trainer, "layers.1.feed_forward.down.weight"), 0);
    fill(parameter_of(trainer, "norm.weight"), 1e3);
    std::vector<Tensor> before;
    for (const NamedTensor& tensor : state_tensors(trainer.model())) {
      before.push_back(clone(tensor.tensor));
    }
    SLUICE_EXPECT_THROW(
        trainer.step(),
        Error,
        "egin a new run with --start-from the newest checkpoint and a lower learning_rate");
    const auto after = state_tensors(trainer.model());
    for (size_t i = 0; i < after.size(); ++i) {
      // Each backward pass moves it towards its mean of <grad_out, rows>.
      if (after[i].name.ends_with(".baseline")) {
        EXPECT_TRUE(std::isfinite(*after[i].tensor.data<float>())) << after[i].name;
        continue;
      }
      EXPECT_TRUE(testing::bit_equal(after[i].tensor, before[i], after[i].name));
    }
    for (const NamedTensor& parameter : trainer.model().parameters()) {
      EXPECT_FALSE(autograd::grad(parameter.tensor).defined()) << parameter.name;
    }
    EXPECT_EQ(trainer.steps_done(), 1);
  }
}

TEST(Trainer, WeightDecayLeavesGainsAlone) {
  RunConfig config = small_config();
  config.train.weight_decay = 0;
  Trainer without(config, sample_text());
  config.train.weight_decay = 0.5;
  Trainer with(config, sample_text());
  without.step();
  with.step();
  for (const char* gain : {"q_norm.weight", "k_norm.weight"}) {
    const std::string name = std::string("layers.0.attention.") + gain;
    EXPECT_TRUE(testing::bit_equal(parameter_of(with, name), parameter_of(without, name), name));
  }
  const std::string matrix = "layers.0.feed_forward.up.weight";
  EXPECT_FALSE(testing::bit_equal(parameter_of(with, matrix), parameter_of(without, matrix)));
}

TEST(Trainer, TheMultiplierSeesTheCostOfTheWholeStep) {
  RunConfig config = small_config();
  config.model.phases = {{1.0, RouteMode::soft, true, 1.0}};
  config.model.target_cost = 0.01;
  config.train.accumulation = 3;
  Trainer trainer(config, sample_text());
  const StepReport report = trainer.step();
  const double expected =
      config.model.multiplier_rate * (report.expected_cost - config.model.target_cost);
  EXPECT_GT(expected, 0);
  EXPECT_FLOAT_EQ(float(report.multiplier), float(expected));
}

TEST(Evaluate, WindowsAddUpAndTextMustHoldOne) {
  Trainer trainer(small_config(), sample_text());
  const auto text = trainer.text().held_out();
  const EvaluateOptions options{.tokens = 48, .value_fields = {"Filename: "}};
  const Evaluation whole = evaluate(trainer.model(), text, options);
  EvaluateOptions part = options;
  double loss = 0;
  for (part.first_window = 0; part.first_window < whole.windows; ++part.first_window) {
    part.windows = 1;
    loss += evaluate(trainer.model(), text, part).loss / double(whole.windows);
  }
  EXPECT_NEAR(loss, whole.loss, 1e-5);
  EXPECT_EQ(whole.bytes, whole.windows * 48);
  EXPECT_NEAR(whole.bits_per_byte, whole.loss / std::log(2.0), 1e-12);
  SLUICE_EXPECT_THROW(
      evaluate(trainer.model(), text.first(48), options), ArgumentError, "got 48 bytes");
}

TEST(Evaluate, OnlyWholeBatchesArePriced) {
  Trainer trainer(small_config(), sample_text());
  const AttentionCostModel costs = measure_costs(small_config().model, 2, 48);
  EvaluateOptions options{.mode = RouteMode::window, .batch = 2, .tokens = 48, .costs = &costs};
  const auto predicted = [&](int64_t windows) {
    options.windows = windows;
    return evaluate(trainer.model(), trainer.text().held_out(), options).predicted_ms;
  };
  EXPECT_TRUE(std::isnan(predicted(1)));
  EXPECT_GT(predicted(2), 0);
  EXPECT_DOUBLE_EQ(predicted(3), predicted(2));
}

TEST(Evaluate, SharpnessReachesTheSoftRoutes) {
  RunConfig config = small_config();
  EXPECT_EQ(soft_sharpness(config.model), 1.0);
  config.model.phases = {
      {0.3, RouteMode::soft, false, 2.0},
      {0.6, RouteMode::soft, false, 3.0},
      {1.0, RouteMode::hard, false, 1.0}};
  EXPECT_EQ(soft_sharpness(config.model), 3.0);
  Trainer trainer(config, sample_text());
  EvaluateOptions options{.mode = RouteMode::soft, .tokens = 48, .windows = 2};
  const auto full_share = [&](double sharpness) {
    options.sharpness = sharpness;
    return evaluate(trainer.model(), trainer.text().held_out(), options).layers[0].all[0];
  };
  EXPECT_NE(full_share(1), full_share(3));
}

TEST(Generate, SamplesFollowTheirWeights) {
  const std::vector<float> logits = {0, 2, 1, 2};
  EXPECT_EQ(sample_logits(logits, 0, 0, 0.99), 1);
  EXPECT_EQ(sample_logits(logits, 1, 1, 0.99), 1);
  EXPECT_EQ(sample_logits(logits, 1, 2, 0.49), 1);
  EXPECT_EQ(sample_logits(logits, 1, 2, 0.51), 3);
  // Weights e^2, e^2, e, 1 in falling order: the last begins at 1 - 1 / (2 e^2 + e + 1).
  const double last = 1 - 1 / (2 * std::exp(2.0) + std::exp(1.0) + 1);
  EXPECT_EQ(sample_logits(logits, 1, 0, last - 1e-6), 2);
  EXPECT_EQ(sample_logits(logits, 1, 0, last + 1e-6), 0);
}

TEST(Generate, LogitsWithoutASoftmaxAreRefused) {
  for (const double temperature : {0.0, 1.0}) {
    for (const size_t place : {0, 1, 3}) {
      for (const float bad : {NAN, INFINITY}) {
        std::vector<float> logits = {0, 2, 1, 2};
        logits[place] = bad;
        SLUICE_EXPECT_THROW(
            sample_logits(logits, temperature, 0, 0.5),
            ArgumentError,
            "sample_logits: the largest logit must be finite, got " + std::to_string(bad));
      }
    }
  }
  const std::vector<float> none(3, -INFINITY);
  SLUICE_EXPECT_THROW(sample_logits(none, 1, 0, 0.5), ArgumentError, "got -inf");
  EXPECT_EQ(sample_logits(std::vector<float>{-INFINITY, 1}, 1, 0, 0.0), 1);
}

TEST(Generate, IsAFunctionOfTheSeedAndStopsAtTheContext) {
  const Trainer trainer(small_config(), sample_text());
  const std::string text = generate(trainer.model(), "Package", {.bytes = 1000, .seed = 5});
  EXPECT_EQ(text.size(), 48u - 7u + 1u);  // the last byte is predicted but never read
  EXPECT_EQ(generate(trainer.model(), "Package", {.bytes = 1000, .seed = 5}), text);
  EXPECT_NE(generate(trainer.model(), "Package", {.bytes = 1000, .seed = 6}), text);
  EXPECT_EQ(generate(trainer.model(), "", {.bytes = 3}).size(), 3u);
  SLUICE_EXPECT_THROW(
      generate(trainer.model(), std::string(48, 'x'), {}),
      ArgumentError,
      "must be shorter than the context of 48 bytes, got 48");
}

}  // namespace
}  // namespace sluice
