#include "kernels/cpu/mask_code.h"

#include <cmath>

#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

bool holds(double x) { return x > 0 || x < 0; }

double of_one(int op, double a) {
  switch (op) {
    case AS_MASK_NOT:
      return holds(a) ? 0 : 1;
    case AS_MASK_NEG:
      return -a;
    case AS_MASK_ABS:
      return std::fabs(a);
    case AS_MASK_FLOOR:
      return std::floor(a);
    case AS_MASK_EXP2:
      return std::exp2(a);
    default:
      return std::tanh(a);
  }
}

double of_two(int op, double a, double b) {
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
      return std::floor(a / b);
    case AS_MASK_MOD:
      return a - b * std::floor(a / b);
    case AS_MASK_LT:
      return a < b ? 1 : 0;
    case AS_MASK_LE:
      return a <= b ? 1 : 0;
    case AS_MASK_GT:
      return a > b ? 1 : 0;
    case AS_MASK_GE:
      return a >= b ? 1 : 0;
    case AS_MASK_EQ:
      return a == b ? 1 : 0;
    case AS_MASK_NE:
      return a < b || a > b ? 1 : 0;
    case AS_MASK_AND:
      return holds(a) && holds(b) ? 1 : 0;
    case AS_MASK_OR:
      return holds(a) || holds(b) ? 1 : 0;
    case AS_MASK_MIN:
      return a < b ? a : b;
    default:
      return a > b ? a : b;
  }
}

double variable(int op, const MaskPlace& place, double score) {
  switch (op) {
    case AS_MASK_Q_IDX:
      return static_cast<double>(place.query);
    case AS_MASK_KV_IDX:
      return static_cast<double>(place.key);
    case AS_MASK_HEAD:
      return static_cast<double>(place.head);
    case AS_MASK_REQUEST:
      return static_cast<double>(place.request);
    default:
      return score;
  }
}

}  // namespace

double run_mask_code(const as_tensor& code, const MaskPlace& place, double score) {
  double stack[AS_MASK_STACK] = {};
  int top = 0;  // values on it
  for (std::int64_t i = 0; i < code.shape[0]; ++i) {
    const auto op = static_cast<int>(*at<double>(code, i, 0));
    switch (as_mask_operands(op)) {
      case 0:
        stack[top++] = op == AS_MASK_NUMBER ? *at<double>(code, i, 1) : variable(op, place, score);
        break;
      case 1:
        stack[top - 1] = of_one(op, stack[top - 1]);
        break;
      case 2:
        stack[top - 2] = of_two(op, stack[top - 2], stack[top - 1]);
        --top;
        break;
      default:
        stack[top - 3] = holds(stack[top - 3]) ? stack[top - 2] : stack[top - 1];
        top -= 2;
    }
  }
  return stack[0];
}

bool mask_uses(const as_tensor& code, as_mask_op variable_of) {
  for (std::int64_t i = 0; present(code) && i < code.shape[0]; ++i) {
    if (static_cast<int>(*at<double>(code, i, 0)) == variable_of) return true;
  }
  return false;
}

bool check_mask_code(const char* name, const as_tensor& code, bool is_score, bool values,
                     Check& check) {
  if (!present(code) && code.rank == 0) return true;
  if (!check.tensor(name, code, AS_F64, {kAny, 2})) return false;
  if (code.shape[0] < 1 || code.shape[0] > AS_MASK_CODE_LENGTH) {
    return check.fail("%s has %lld instructions; allowed: 1 to %d", name,
                      static_cast<long long>(code.shape[0]), AS_MASK_CODE_LENGTH);
  }
  int top = 0;
  for (std::int64_t i = 0; values && i < code.shape[0]; ++i) {
    const double given = *at<double>(code, i, 0);
    const bool whole = given >= 0 && given < double{AS_MASK_OPS} && given == std::floor(given);
    if (!whole || (!is_score && static_cast<int>(given) == AS_MASK_SCORE)) {
      return check.fail("%s[%lld] is instruction %g; allowed: 0 to %d%s", name,
                        static_cast<long long>(i), given, AS_MASK_OPS - 1,
                        whole ? ", and the score in score functions alone" : "");
    }
    const int operands = as_mask_operands(static_cast<int>(given));
    if (operands > top || top - operands + 1 > AS_MASK_STACK) {
      return check.fail("%s[%lld] takes %d values and %d are there, of %d at most", name,
                        static_cast<long long>(i), operands, top, AS_MASK_STACK);
    }
    top += 1 - operands;
  }
  if (!values || top == 1) return true;
  return check.fail("%s leaves %d values; one must be left", name, top);
}

}  // namespace attnscope::cpu
