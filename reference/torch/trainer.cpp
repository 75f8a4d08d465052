#include "reference/torch/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/torch/device.h"
#include "reference/torch/errors.h"
#include "reference/torch/train_measure.h"
#include "reference/torch/train_mla.h"
#include "reference/torch/train_model.h"
#include "reference/torch/train_v4.h"

namespace attnscope::reference {
namespace {

namespace trains {

using at::Tensor;

// Adam's, and the length that a gradient is cut to.
constexpr double kFirst = 0.9, kSecond = 0.99, kSmall = 1e-8, kLongest = 1.0;

// How many threads libtorch takes, as long as it lives: others of the process have their own
// number.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

struct Learnt {
  Tensor first, second;
};

class TorchTrainer : public Trainer {
 public:
  TorchTrainer(std::unique_ptr<TrainModel> model, int threads)
      : threads_(threads), owned_(std::move(model)), model_(*owned_) {
    // Blocks of attention are taken and given back all the time: by mmap, the kernel would clear
    // each again.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    for (const auto& [name, w] : model_.weights()) {
      learnt_[name] = {at::zeros_like(w), at::zeros_like(w)};
    }
  }

  Result<TrainLoss> step(TrainStage stage, const TrainBatch& batch, double rate) override {
    return kept_inside<TrainLoss>([&]() -> Result<TrainLoss> {
      const TrainLoss lost = differentiate(stage, batch);
      double square = 0;
      for (const auto& [name, w] : model_.weights()) {
        if (w.grad().defined()) square += w.grad().square().sum().item<double>();
      }
      const double length = std::sqrt(square);
      if (!std::isfinite(lost.language) || !std::isfinite(lost.kl) || !std::isfinite(length)) {
        return bad_input("training: the loss or its gradient is no number any more",
                         "begin again with a smaller --rate");
      }
      ++steps_;
      const at::NoGradGuard none;
      for (const auto& [name, w] : model_.weights()) {
        if (!w.grad().defined()) continue;
        const Tensor g = length > kLongest ? w.grad() * (kLongest / length) : w.grad();
        Learnt& l = learnt_.at(name);
        l.first.mul_(kFirst).add_(g, 1 - kFirst);
        l.second.mul_(kSecond).addcmul_(g, g, 1 - kSecond);
        const auto n = static_cast<double>(steps_);
        const double first = 1 - std::pow(kFirst, n), second = 1 - std::pow(kSecond, n);
        const Tensor root = (l.second / second).sqrt_().add_(kSmall);
        w.detach().addcdiv_(l.first, root, -rate / first);
      }
      forget();
      return lost;
    });
  }

  Result<TrainMeasure> measure(const TrainBatch& batch, std::int64_t far) const override {
    return kept_inside<TrainMeasure>([&]() -> Result<TrainMeasure> {
      const at::NoGradGuard none;
      return measure_selections(model_, ids_of(batch), far);
    });
  }

  Result<std::vector<double>> gradient(TrainStage stage, const TrainBatch& batch,
                                       const std::string& name) override {
    return kept_inside<std::vector<double>>([&]() -> Result<std::vector<double>> {
      differentiate(stage, batch);
      const Tensor g = model_.weights().at(name).grad();
      std::vector<double> out;
      if (g.defined()) {
        const Tensor dense = g.cpu().to(at::kDouble).contiguous();
        out.assign(dense.data_ptr<double>(), dense.data_ptr<double>() + dense.numel());
      }
      forget();
      return out;
    });
  }

  Result<TrainLoss> loss(TrainStage stage, const TrainBatch& batch) override {
    return kept_inside<TrainLoss>([&]() -> Result<TrainLoss> {
      const at::NoGradGuard none;
      return over(stage, batch, false);
    });
  }

  Result<void> nudge(const std::string& name, std::int64_t element, double by) override {
    const auto it = model_.weights().find(name);
    if (it == model_.weights().end() || element < 0 || element >= it->second.numel()) {
      return bad_input(name + ": the model has no such number");
    }
    return kept_inside<void>([&]() -> Result<void> {
      it->second.detach().view(-1)[element] += by;
      return {};
    });
  }

  Result<std::vector<double>> logits(const TrainBatch& batch, bool sparse) const override {
    return kept_inside<std::vector<double>>([&]() -> Result<std::vector<double>> {
      const at::NoGradGuard none;
      const Tensor ids = ids_of(batch).narrow(1, 0, batch.length);
      const Attends attends = sparse ? Attends::kChosen : Attends::kAll;
      const Tensor all = model_.logits(model_.forward(ids, attends, false, nullptr))
                             .cpu()
                             .to(at::kDouble)
                             .contiguous();
      return std::vector<double>(all.data_ptr<double>(), all.data_ptr<double>() + all.numel());
    });
  }

  std::vector<TrainedTensor> tensors() const override {
    std::vector<TrainedTensor> all;
    for (const auto& [name, w] : model_.weights()) {
      const Learnt& l = learnt_.at(name);
      all.push_back({name, w.sizes().vec(), floats(w), floats(l.first), floats(l.second)});
    }
    return all;
  }

  Result<void> restore(const std::vector<TrainedTensor>& tensors, std::int64_t steps) override {
    return kept_inside<void>([&] { return put_back(tensors, steps); });
  }
  std::int64_t steps() const override { return steps_; }

 private:
  // The border: what libtorch throws becomes an error here.
  template <class T, class F>
  Result<T> kept_inside(const F& f) const {
    try {
      const Threads threads(threads_);
      return f();
    } catch (const std::exception& e) {
      return error_of("training", e);
    }
  }

  Result<void> put_back(const std::vector<TrainedTensor>& tensors, std::int64_t steps) {
    if (tensors.size() != model_.weights().size()) {
      return bad_input("a saved state with another number of tensors than the model has");
    }
    for (const TrainedTensor& t : tensors) {
      const auto it = model_.weights().find(t.name);
      const auto n =
          it == model_.weights().end() ? 0 : static_cast<std::size_t>(it->second.numel());
      if (n == 0 || t.value.size() != n || t.first.size() != n || t.second.size() != n) {
        return bad_input(t.name + ": not as large in the saved state as in the model");
      }
      put(t.value, it->second);
      put(t.first, learnt_.at(t.name).first);
      put(t.second, learnt_.at(t.name).second);
    }
    steps_ = steps;
    return {};
  }

  static Tensor ids_of(const TrainBatch& batch) {
    const std::int64_t across = batch.length + 1;
    if (batch.sequences < 1 || batch.length < 1 ||
        std::ssize(batch.tokens) != batch.sequences * across) {
      throw std::invalid_argument("a batch of another size than it says");
    }
    const Tensor ids = at::empty({batch.sequences, across}, at::kLong);
    std::copy(batch.tokens.begin(), batch.tokens.end(), ids.data_ptr<std::int64_t>());
    return ids.to(torch_device());
  }

  static std::vector<float> floats(const Tensor& t) {
    const Tensor dense = t.detach().cpu().to(at::kFloat).contiguous();
    return {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()};
  }
  static void put(const std::vector<float>& from, const Tensor& to) {
    const Tensor flat = at::empty({std::ssize(from)}, at::kFloat);
    std::copy(from.begin(), from.end(), flat.data_ptr<float>());
    to.detach().copy_(flat.view(to.sizes()));
  }

  // What is minimised, of the first sequence of `all` [1, T + 1].
  Tensor total(TrainStage stage, const Tensor& all, TrainLoss& lost) const {
    const std::int64_t length = all.size(1) - 1;
    const Tensor ids = all.narrow(1, 0, length), next = all.narrow(1, 1, length);
    const bool indexer = stage != TrainStage::kModel, sparse = stage == TrainStage::kSparse;
    std::vector<LayerSeen> seen;
    const Tensor hidden = model_.forward(ids, sparse ? Attends::kChosen : Attends::kAll, indexer,
                                         indexer ? &seen : nullptr);
    const Tensor language = model_.losses(hidden, next).mean();
    lost.language = language.item<double>();
    Tensor sum = stage == TrainStage::kWarmUp ? language.detach() : language;
    for (const LayerSeen& layer : seen) {
      const Tensor kl = model_.divergence(layer, sparse).mean();
      lost.kl += kl.item<double>() / static_cast<double>(seen.size());
      sum = sum + kl;
    }
    return sum;
  }

  // One sequence after the other: what attention keeps for its gradient is large. The mean over
  // them; each adds its part to the gradients where learn.
  TrainLoss over(TrainStage stage, const TrainBatch& batch, bool learn) const {
    const Tensor all = ids_of(batch);
    const auto n = static_cast<double>(batch.sequences);
    TrainLoss mean;
    for (std::int64_t s = 0; s < batch.sequences; ++s) {
      TrainLoss lost;
      const Tensor sum = total(stage, all.narrow(0, s, 1), lost);
      if (learn) (sum / n).backward();
      mean.language += lost.language / n;
      mean.kl += lost.kl / n;
    }
    return mean;
  }

  TrainLoss differentiate(TrainStage stage, const TrainBatch& batch) {
    forget();
    for (const auto& [name, w] : model_.weights()) {
      const bool indexer = TrainModel::of_indexer(name);
      w.set_requires_grad(stage == TrainStage::kSparse ||
                          indexer == (stage == TrainStage::kWarmUp));
    }
    const TrainLoss lost = over(stage, batch, true);
    for (const auto& [name, w] : model_.weights()) w.set_requires_grad(false);
    return lost;
  }
  void forget() {
    for (const auto& [name, w] : model_.weights()) w.mutable_grad() = Tensor();
  }

  int threads_;
  std::unique_ptr<TrainModel> owned_;
  const TrainModel& model_;
  std::map<std::string, Learnt> learnt_;
  std::int64_t steps_ = 0;
};

template <class Model, class Numbers>
Result<std::unique_ptr<Trainer>> made(const Numbers& numbers, const TensorSource& source,
                                      const TrainOptions& options) {
  try {
    auto model =
        std::make_unique<Model>(numbers, source, options.float64 ? at::kDouble : at::kFloat);
    std::unique_ptr<Trainer> trainer =
        std::make_unique<TorchTrainer>(std::move(model), options.threads);
    return trainer;
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return error_of("training", e);
    return bad_input(std::string("training: ") + e.what(), "see `attnscope model tensors`");
  }
}

}  // namespace trains

}  // namespace

Result<std::unique_ptr<Trainer>> make_torch_mla_trainer(const MlaNumbers& numbers,
                                                        const TensorSource& source,
                                                        const TrainOptions& options) {
  return trains::made<TrainMla>(numbers, source, options);
}

Result<std::unique_ptr<Trainer>> make_torch_v4_trainer(const ModelNumbers& numbers,
                                                       const TensorSource& source,
                                                       const TrainOptions& options) {
  return trains::made<TrainV4>(numbers, source, options);
}

}  // namespace attnscope::reference
