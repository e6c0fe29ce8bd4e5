zz=5
print(zz)