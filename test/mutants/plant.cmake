# plant(<file> <from> <to>): puts a bug into a copied source, in the folder ${planted}. A place that is not found is an
# error: the source was rewritten, and its mutants must move along.
function(plant file from to)
  file(READ "${planted}/${file}" text)
  string(FIND "${text}" "${from}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "mutants: ${file} no longer holds\n  ${from}")
  endif()
  string(REPLACE "${from}" "${to}" text "${text}")
  file(WRITE "${planted}/${file}" "${text}")
endfunction()
