#include "convert/convert.h"
#include "convert/refusal.h"

namespace rmsnorm::convert::checkpoint {

void inspect(const Request& request, Report&) { refuse(RefusalCode::kUnknown, request.input, "not built yet"); }
void convert(const Request& request, Report&) { refuse(RefusalCode::kUnknown, request.input, "not built yet"); }
void fold(const Request& request, Report&) { refuse(RefusalCode::kUnknown, request.input, "not built yet"); }
void verify(const Request& request, Report&) { refuse(RefusalCode::kUnknown, request.input, "not built yet"); }

}  // namespace rmsnorm::convert::checkpoint
