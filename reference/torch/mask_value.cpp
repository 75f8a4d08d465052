#include "reference/torch/mask_value.h"

#include <cmath>
#include <string>
#include <vector>

#include "kernels/params/mask_code.h"

namespace attnscope::reference {
namespace {

// Every number but 0; NaN is false.
Tensor truth(const Tensor& t) { return t.gt(0).logical_or(t.lt(0)); }
Tensor as_number(const Tensor& t) { return t.to(at::kDouble); }

// Takes values from the end and puts one there.
class Machine {
 public:
  Machine(const char* name, const MaskPlaces& places, const Tensor& score)
      : name_(name), places_(places), score_(score) {}

  void step(int op, double number) {
    if (op == AS_MASK_NUMBER) return put(at::scalar_tensor(number, at::kDouble));
    if (op == AS_MASK_Q_IDX) return put(places_.query);
    if (op == AS_MASK_KV_IDX) return put(places_.key);
    if (op == AS_MASK_HEAD) return put(places_.head);
    if (op == AS_MASK_REQUEST) return put(places_.request);
    if (op == AS_MASK_SCORE) {
      if (!score_.defined()) refuse("reads a score, and masks have none");
      return put(score_.to(at::kDouble).cpu());
    }
    const Tensor last = take();
    switch (op) {
      case AS_MASK_NOT:
        return put(as_number(truth(last).logical_not()));
      case AS_MASK_NEG:
        return put(last.neg());
      case AS_MASK_ABS:
        return put(last.abs());
      case AS_MASK_FLOOR:
        return put(last.floor());
      case AS_MASK_EXP2:
        return put(last.exp2());
      case AS_MASK_TANH:
        return put(last.tanh());
      default:
        break;
    }
    const Tensor left = take();
    if (op == AS_MASK_SELECT) return put(at::where(truth(take()), left, last));
    put(both(op, left, last));
  }

  Tensor result() {
    const Tensor value = take();
    if (!stack_.empty()) refuse("leaves more than one value");
    return value;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadInput(std::string(name_) + " " + why);
  }

 private:
  Tensor both(int op, const Tensor& a, const Tensor& b) const {
    switch (op) {
      case AS_MASK_ADD:
        return a + b;
      case AS_MASK_SUB:
        return a - b;
      case AS_MASK_MUL:
        return a * b;
      case AS_MASK_DIV:
        return a / b;
      case AS_MASK_FLOOR_DIV:
        return (a / b).floor();
      case AS_MASK_MOD:
        return a - (a / b).floor() * b;
      case AS_MASK_LT:
        return as_number(a.lt(b));
      case AS_MASK_LE:
        return as_number(a.le(b));
      case AS_MASK_GT:
        return as_number(a.gt(b));
      case AS_MASK_GE:
        return as_number(a.ge(b));
      case AS_MASK_EQ:
        return as_number(a.eq(b));
      case AS_MASK_NE:
        return as_number(a.gt(b).logical_or(a.lt(b)));
      case AS_MASK_AND:
        return as_number(truth(a).logical_and(truth(b)));
      case AS_MASK_OR:
        return as_number(truth(a).logical_or(truth(b)));
      case AS_MASK_MIN:
        return at::where(a.lt(b), a, b);
      default:
        return at::where(a.gt(b), a, b);
    }
  }

  void put(Tensor value) {
    stack_.push_back(std::move(value));
    if (stack_.size() > AS_MASK_STACK) refuse("holds more values at once than may be");
  }
  Tensor take() {
    if (stack_.empty()) refuse("takes a value where none is");
    Tensor value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }

  const char* name_;
  const MaskPlaces& places_;
  const Tensor& score_;
  std::vector<Tensor> stack_;
};

}  // namespace

Tensor evaluated(const as_tensor& code, const char* name, const MaskPlaces& places,
                 const Tensor& score) {
  const Tensor rows = floats(code, name, {kAny, 2}).cpu().contiguous();
  Machine machine(name, places, score);
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const auto op = rows[i][0].item<double>();
    if (!(op >= 0 && op < double{AS_MASK_OPS}) || op != std::floor(op)) {
      machine.refuse("has an instruction that there is not");
    }
    machine.step(static_cast<int>(op), rows[i][1].item<double>());
  }
  return machine.result();
}

}  // namespace attnscope::reference
